"""Types of the arguments that the scripts of bench/ share."""
import argparse
import re


def at_least_one(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f'{text}: at least 1')
    return value


def two_cpus(text):
    cpus = text.split(',')
    if len(cpus) != 2 or not all(re.fullmatch(r'[0-9]+', cpu) for cpu in cpus) or int(cpus[0]) == int(cpus[1]):
        raise argparse.ArgumentTypeError(f'{text}: two different CPUs, such as 0,1')
    return [int(cpu) for cpu in cpus]
