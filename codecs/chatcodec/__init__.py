"""The codec between structured chat and the text that language models read and write."""

from .errors import CodecError, Diagnostic, Loss, ParseError, RenderError, UnknownFormatError
from .events import (
    ArgumentsDelta,
    ContentDelta,
    Diagnosed,
    Event,
    ReasoningDelta,
    ToolCallDropped,
    ToolCallEnd,
    ToolCallStart,
)
from .format import Format, Option
from .formats import get_format, list_formats
from .messages import Conversation, FunctionCall, Message, ToolCall
from .reply import PartialCall, Reply, Segment
from .stream import IdStream, Stream
from .wire import Rendered, Span

__version__ = "0.1.0"

__all__ = [
    "ArgumentsDelta",
    "CodecError",
    "ContentDelta",
    "Conversation",
    "Diagnosed",
    "Diagnostic",
    "Event",
    "Format",
    "FunctionCall",
    "IdStream",
    "Loss",
    "Message",
    "Option",
    "ParseError",
    "PartialCall",
    "ReasoningDelta",
    "RenderError",
    "Rendered",
    "Reply",
    "Segment",
    "Span",
    "Stream",
    "ToolCall",
    "ToolCallDropped",
    "ToolCallEnd",
    "ToolCallStart",
    "UnknownFormatError",
    "get_format",
    "list_formats",
]
