"""The names of `polyrank`, where programs written for `torch.distributed` look for them.

`import polyrank.distributed as dist` stands in for `import torch.distributed as dist`.
"""

from polyrank import _core, _enums
from polyrank._core import *
from polyrank._enums import *

__all__: list[str] = []
__all__ += _core.__all__
__all__ += _enums.__all__
