"""One file, one paper. Importing this package registers every method."""

from robustda.methods.adda import ADDA
from robustda.methods.base import Method
from robustda.methods.clarity import Clarity
from robustda.methods.concord import Concord
from robustda.methods.dan import DAN
from robustda.methods.dann import DANN
from robustda.methods.mdd import MDD
from robustda.methods.mentornet import MentorNet
from robustda.methods.prototypes import Prototypes
from robustda.methods.rda import RDA
from robustda.methods.registry import create_method, method_class, method_names, register
from robustda.methods.rtn import RTN
from robustda.methods.source_only import SourceOnly
from robustda.methods.spl import SPL
from robustda.methods.tcl import TCL

__all__ = [
    "ADDA",
    "DAN",
    "DANN",
    "MDD",
    "RDA",
    "RTN",
    "SPL",
    "TCL",
    "Clarity",
    "Concord",
    "MentorNet",
    "Method",
    "Prototypes",
    "SourceOnly",
    "create_method",
    "method_class",
    "method_names",
    "register",
]
