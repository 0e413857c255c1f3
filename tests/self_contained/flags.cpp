// Never compiled: check.py reads from the build how it would be, and reads each header so.
