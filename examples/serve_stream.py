"""Serve a recorded completion as server-sent events, as an OpenAI server does, and read it back with OpenAI's own client.

Needs the package `openai`, which brings `httpx2`; no socket is opened, since the client calls the app in the same process.
"""

import asyncio
import json
from typing import Any

import httpx2
from openai import AsyncOpenAI

import chatcodec
from chatcodec.openai import ChunkStream

COMPLETION = (
    "The user wants the weather.\n</think>\n\nLet me look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call><|im_end|>"
)
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """A small ASGI app: whatever is asked, the recorded completion comes, in pieces of four characters."""
    request = json.loads((await receive())["body"])
    stream = ChunkStream(chatcodec.get_format("qwen3_5").stream(tools=request["tools"]), model=request["model"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})

    async def tell(chunks: list[dict[str, Any]]) -> None:
        for chunk in chunks:
            await send({"type": "http.response.body", "body": f"data: {json.dumps(chunk)}\n\n".encode(), "more_body": True})

    for start in range(0, len(COMPLETION), 4):
        await tell(stream.feed(COMPLETION[start : start + 4]))
    await tell(stream.close("stop"))
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def main() -> None:
    """Ask the app, and print what the client makes of it."""
    web = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test/v1")
    client = AsyncOpenAI(api_key="none", base_url="http://test/v1", http_client=web)
    tools: Any = [TOOL]
    answer = await client.chat.completions.create(
        model="qwen", messages=[{"role": "user", "content": "How is Oslo?"}], tools=tools, stream=True
    )
    arguments = ""
    async for chunk in answer:
        delta = chunk.choices[0].delta
        print(repr(getattr(delta, "reasoning_content", None) or delta.content or ""), end=" ")
        for call in delta.tool_calls or ():
            arguments += (call.function and call.function.arguments) or ""
    print("\narguments:", json.loads(arguments))
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
