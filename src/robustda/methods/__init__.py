"""One file, one paper. Importing this package registers every method."""

from robustda.methods.base import Method, create_method, method_class, method_names, register
from robustda.methods.mdd import MDD
from robustda.methods.rda import RDA
from robustda.methods.source_only import SourceOnly

__all__ = ["MDD", "RDA", "Method", "SourceOnly", "create_method", "method_class", "method_names", "register"]
