#include <rdmacoro/transport/verbs_rc/src.hpp>
