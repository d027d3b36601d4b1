"""The model ``llmcc`` of lm-evaluation-harness (``pip install 'llmcc-aot[eval]'``).

::

    llmcc-eval --model llmcc --model_args path=model.so --tasks hellaswag

``llmcc-eval`` (or ``python -m llmcc.lm_eval``) is the harness' own program, ``lm_eval``, which knows this model besides its own (it finds models by import, and
has no plugins). From Python, ``import llmcc.lm_eval`` before ``lm_eval.simple_evaluate(model="llmcc", model_args={"path": "model.so"}, ...)`` does the same.

Texts become tokens as in the harness' ``hf`` model, so that results can be compared: a continuation's tokens are the rest of the whole text's tokens behind
the context, contexts too long lose their beginning, and rolling windows begin with the beginning-of-sequence token. Requests are evaluated together in ragged
batches; a shared beginning (a few-shot prompt, a question with several answers) is evaluated once. Neither changes a bit of the results.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Optional, Sequence, Union

try:
    from lm_eval import utils
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
    from tqdm import tqdm
except ImportError as error:
    raise ImportError(f"llmcc.lm_eval needs lm-evaluation-harness ({error}): pip install 'llmcc-aot[eval]'") from error

from . import _score
from ._errors import LlmccError, Status
from ._model import load

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

#: A request of the harness' token level: its texts, tokens of the context, tokens of the continuation.
TokenRequest = tuple[Any, Sequence[int], Sequence[int]]

#: Parameters of the harness' generations that :meth:`Model.generate` has, too.
_SAMPLING = ("top_k", "top_p", "min_p", "repetition_penalty")


@register_model("llmcc")
class LlmccLM(TemplateLM):  # type: ignore[misc]
    """An artifact under evaluation. The parameters are given in ``--model_args``.

    :param path: the artifact (``pretrained`` is another name for it).
    :param batch_size: sequences that generate at once; ``"auto"``: as :meth:`Model.generate` does it.
    :param max_length: longest sequence (default: the model's longest context).
    :param max_gen_toks: most tokens to generate, for tasks without a limit of their own.
    :param add_bos_token: whether texts begin with the beginning-of-sequence token (default: as the model's tokenizer does it).
    :param prefix_token_id: token before texts without context (default: the beginning-of-sequence token, else the end-of-sequence token).
    :param think_end_token: a text; only the generated text after it counts.
    :param seed: start of the random numbers of tasks that draw; each request has its own.
    :param threads, max_tokens, max_batch_tokens, portable: as for :func:`llmcc.load`.
    :param device, max_batch_size: accepted, as the harness passes them; the artifact knows its machine and ignores them.
    """

    def __init__(
        self,
        path: Optional[str] = None,
        *,
        pretrained: Optional[str] = None,
        batch_size: Union[int, str, None] = None,
        max_batch_size: Optional[int] = None,
        device: Optional[str] = None,
        max_length: Optional[int] = None,
        max_gen_toks: int = 256,
        add_bos_token: Optional[bool] = None,
        prefix_token_id: Optional[int] = None,
        think_end_token: Optional[str] = None,
        seed: int = 0,
        threads: Optional[int] = None,
        max_tokens: Optional[int] = None,
        max_batch_tokens: Optional[int] = None,
        portable: bool = False,
    ) -> None:
        super().__init__()
        if (path is None) == (pretrained is None):
            raise ValueError("model_args must name the artifact: path=model.so")
        self.model = load(path or pretrained or "", threads, max_tokens, max_batch_tokens=max_batch_tokens, portable=portable)
        info = self.model.info
        if not info["has_tokenizer"]:
            raise LlmccError(f"{self.model.path} has no tokenizer, without which texts cannot be judged", Status.UNSUPPORTED)
        if max_length is not None and not 2 <= max_length <= info["max_context"]:
            raise ValueError(f"max_length is {max_length}; use 2 to {info['max_context']}, the model's longest context")
        self.max_length: int = max_length or info["max_context"]
        self.max_gen_toks = max_gen_toks
        self.batch_size = _batch_size(batch_size)
        self._add_bos = add_bos_token
        self._prefix = prefix_token_id
        self._think_end_token = think_end_token
        self._seed = seed
        self._draws = 0
        self._template: Optional[str] = None
        bos = self.model.bos_token
        self._bos_text = None if bos is None else self.model.token_to_piece(bos)

    # ---- tokens

    @property
    def eot_token_id(self) -> int:
        """The first token that ends a generation."""
        ends = self.model.eos_tokens
        if not ends:
            raise LlmccError("the artifact knows no end-of-sequence token; name one: prefix_token_id=...", Status.UNSUPPORTED)
        return ends[0]

    @property
    def prefix_token_id(self) -> int:
        """The token before texts without context."""
        if self._prefix is not None:
            return self._prefix
        bos = self.model.bos_token
        return self.eot_token_id if bos is None else bos

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None, **_: Any) -> list[int]:
        """Tokens of a text. A text that begins with the beginning-of-sequence token (one of a chat template, say) gets no second one."""
        if add_special_tokens is None:
            add_special_tokens = True if self._add_bos is None else self._add_bos
            if self._bos_text and string.startswith(self._bos_text):
                add_special_tokens = False
        return self.model.tokenize(string, add_special=add_special_tokens)

    def tok_decode(self, tokens: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Text of tokens."""
        return self.model.detokenize(list(tokens), show_special=not skip_special_tokens)

    # ---- judging

    def _loglikelihood_tokens(self, requests: Sequence[TokenRequest], disable_tqdm: bool = False, **_: Any) -> list[tuple[float, bool]]:
        judged = self._judge([(context, continuation) for _, context, continuation in requests], disable_tqdm)
        for request, answer in zip(requests, judged):
            if request[0] is not None:
                self.cache_hook.add_partial("loglikelihood", request[0], answer)
        return judged

    def _judge(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], disable_tqdm: bool) -> list[tuple[float, bool]]:
        """Sum of the log-probabilities of each continuation, and whether its tokens are the most probable ones."""
        items = []
        for context, continuation in pairs:
            if not continuation:
                raise ValueError("a request has a continuation without tokens")
            if len(continuation) > self.max_length:
                raise ValueError(f"a continuation has {len(continuation)} tokens, more than the longest sequence, {self.max_length}")
            # The last token is only predicted, so there may be one more than the model takes.
            tokens = [*context, *continuation][-(self.max_length + 1) :]
            items.append((tokens, len(tokens) - len(continuation)))
        answers: list[tuple[float, bool]] = [(0.0, False)] * len(items)
        with tqdm(total=len(items), disable=disable_tqdm, desc="Running loglikelihood requests") as progress:
            for index, logprobs in _score.score_each(self.model, items, 1):
                answers[index] = (sum(p.logprob for p in logprobs), all(p.token == p.top[0][0] for p in logprobs))
                progress.update(1)
        return answers

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """Log-probability of whole texts, in windows of the longest sequence."""
        texts = [request.args[0] for request in requests]
        pairs: list[tuple[Sequence[int], Sequence[int]]] = []
        owners: list[int] = []
        for i, text in enumerate(texts):
            windows = utils.get_rolling_token_windows(
                token_list=self.tok_encode(text), prefix_token=self.prefix_token_id, max_seq_len=self.max_length, context_len=1
            )
            pairs += map(utils.make_disjoint_window, windows)
            owners += [i] * (len(pairs) - len(owners))
        totals = [0.0] * len(texts)
        for owner, (logprob, _) in zip(owners, self._judge(pairs, disable_tqdm)):
            totals[owner] += logprob
        for text, total in zip(texts, totals):
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
        return totals

    # ---- generating

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """The model's text after each context, until one of the texts that end it."""
        prompts: list[list[int]] = []
        each: list[dict[str, Any]] = []
        untils: list[list[str]] = []
        for request in requests:
            context, kwargs = request.args
            params, until = self._params(kwargs)
            room = self.max_length - params["max_tokens"]
            if room <= 0:
                raise ValueError(f"max_gen_toks is {params['max_tokens']}; use less than the longest sequence, {self.max_length}")
            prompts.append(self.tok_encode(context)[-room:])
            each.append(params)
            untils.append(until)
        texts = [""] * len(prompts)
        with tqdm(total=len(prompts), disable=disable_tqdm, desc="Running generate_until requests") as progress:
            for i, piece in self.model.pieces(prompts, each=each, max_batch=self.batch_size) if prompts else ():
                texts[i] += piece.text
                progress.update(piece.finish is not None)
        results = [postprocess_generated_text(text, until, self._think_end_token) for text, until in zip(texts, untils)]
        for request, result in zip(requests, results):
            self.cache_hook.add_partial("generate_until", request.args, result)
        return results

    def _params(self, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Parameters of a generation, and the texts that end it."""
        given = dict(normalize_gen_kwargs(dict(kwargs), self.max_gen_toks))
        until = [text for text in given.pop("until") if text]
        draws = given.pop("do_sample")
        params = {
            "max_tokens": given.pop("max_gen_toks"),
            "temperature": given.pop("temperature", 1.0 if draws else 0.0),
            **{name: given.pop(name) for name in _SAMPLING if name in given},
        }
        if given:
            raise ValueError(f"generation_kwargs has {', '.join(sorted(given))}, which llmcc does not know")
        if draws:
            # Repeats of a request are to differ.
            params["seed"] = self._seed + self._draws
            self._draws += 1
        # Special tokens have no text of their own, but end a generation that names them.
        special = [token for token in map(self.model.piece_to_token, until) if token is not None and self.model.is_special(token)]
        return {**params, "stop": until, "stop_tokens": special}, until

    # ---- chats

    @property
    def tokenizer_name(self) -> str:
        """Tells requests made with another tokenizer or template from this model's, in the harness' cache."""
        probe = [{"role": "user", "content": "a"}]
        text = self.apply_chat_template(probe) if self.model.info["has_chat_template"] else ""
        tokens = [self.model.token_to_piece(t) for t in range(min(self.model.tokenizer_size, self.model.vocab_size))]
        digest = hashlib.sha256("\0".join([text, *tokens]).encode()).hexdigest()
        return f"llmcc-{digest[:16]}"

    def chat_template(self, chat_template: Union[bool, str] = False) -> Optional[str]:
        """Chooses a template by name (``True``: the model's usual one); its rendering of an example identifies it in the results."""
        if not chat_template:
            return None
        self._template = chat_template if isinstance(chat_template, str) else None
        return self.apply_chat_template([{"role": "user", "content": "{{ content }}"}])

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt for a conversation. Without ``add_generation_prompt`` it ends with the last message, open to be continued."""
        try:
            text = self._render(chat_history, add_generation_prompt)
        except LlmccError as error:
            without_system = [m for m in chat_history if m["role"] != "system"]
            if error.status != Status.TEMPLATE or len(without_system) == len(chat_history):
                raise
            # As the harness' hf model: some templates refuse system messages.
            text = self._render(without_system, add_generation_prompt)
        if add_generation_prompt or not chat_history:
            return text
        last = chat_history[-1]["content"]
        at = text.rfind(last.strip())
        if at < 0:
            raise LlmccError("the chat template does not show the last message, so it cannot be continued", Status.TEMPLATE)
        # As Transformers' continue_final_message: space behind the message stays if the template keeps it.
        whole = last.lstrip()
        return text[: at + len(whole)] if text.startswith(whole, at) else text[: at + len(last.strip())]

    def _render(self, chat_history: list[dict[str, str]], add_generation_prompt: bool) -> str:
        named: dict[str, Any] = {} if self._template is None else {"template": self._template}
        text: str = self.model.apply_chat_template(chat_history, add_generation_prompt=add_generation_prompt, **named)
        return text


def _batch_size(batch_size: Union[int, str, None]) -> Optional[int]:
    """A number, or None for the default; the harness gives texts such as ``auto:4``."""
    if batch_size is None or str(batch_size).split(":")[0] == "auto":
        return None
    try:
        number = int(batch_size)
    except ValueError:
        number = 0
    if number < 1:
        raise ValueError(f"batch_size is {batch_size!r}; use a positive number or auto")
    return number


def main() -> None:
    """The harness' program, with this model."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
