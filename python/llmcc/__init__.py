"""Run language models that ``llmcc compile`` turned into one shared object.

>>> import llmcc
>>> with llmcc.load("llama.so") as m:                       # doctest: +SKIP
...     print(m.generate("Once upon a time", max_tokens=20))
"""

from ._classes import Class
from ._compile import Compiled, compile
from ._compress import Compressed
from ._corpus import Corpus
from ._engine import Engine
from ._errors import LlmccError, Status
from ._model import Model, load
from ._pairs import Ranked, RankedDocument
from ._pieces import Completion, Piece, TokenLogprob
from ._request import Request, Times
from ._session import Session

__version__ = "0.1.0.dev0"
__all__ = ["Class", "Compiled", "Completion", "Compressed", "Corpus", "Engine", "LlmccError", "Model", "Piece", "Ranked", "RankedDocument", "Request", "Session", "Status", "Times", "TokenLogprob", "compile", "load", "__version__"]
