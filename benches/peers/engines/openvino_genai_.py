"""OpenVINO: int4 weights as optimum-intel and NNCF make them, run by OpenVINO GenAI's paged pipeline or by the plain runtime, whichever is faster.

Its defaults stay: KV cache in u8 (but where a case at depth asks for f16), the rest in bf16 where the processor has it. Activations of quantized products are quantized to
int8, by default in groups of 32; groups of 128 are tried as well where many tokens are computed at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# "int4" is the exporter's default: embedding and head in 8 bits. "int4 all" has them in 4 bits as well (`--all-layers`).
FORMATS = {"int4": 4, "int4 all": 4}
CONVERTER = "convert"
CHUNK = 512  # tokens of a prompt at a time
_KV = {"f16": "f16", "int8": "u8"}


def supports(case: Any) -> bool:
    return True


def settings(case: Any, format: str) -> list[dict[str, Any]]:
    apis: list[dict[str, Any]] = [{"api": "GenAI"}, {"api": "runtime"}]
    if case.prompt > 4096:
        # A prompt of minutes for each: only the one that is made for long contexts.
        return apis[:1]
    if case.kind == "load":
        return [api | {"cache": cache} for api in apis for cache in (False, True)]
    if case.kind == "prefill" or case.sequences > 1:
        return [api | {"act_group": group} for api in apis for group in (32, 128)]
    return apis


def stored(folder: Path, format: str, kv: str) -> Path:
    return folder / format.replace(" ", "-")


def convert(checkpoint: Path, out: Path, format: str, group: int, kv: str) -> None:
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

    wanted = OVWeightQuantizationConfig(bits=4, sym=True, group_size=group, ratio=1.0, all_layers=format.endswith(" all"))
    model = OVModelForCausalLM.from_pretrained(checkpoint, export=True, compile=False, quantization_config=wanted)
    model.save_pretrained(out)


def properties(path: str, case: Any, cache: bool, act_group: int) -> dict[str, Any]:
    """`cache`: the compiled model is kept in a folder beside the original; of use when it is opened again."""
    result: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": case.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": act_group,
    }
    if case.depth:
        result["KV_CACHE_PRECISION"] = _KV[case.kv]
    if cache:
        result["CACHE_DIR"] = f"{path}/cache"
    return result


class Engine:
    def __new__(cls, path: str, case: Any, context: int, api: str, cache: bool = False, act_group: int = 32) -> Any:
        return (Paged if api == "GenAI" else Plain)(path, case, context, properties(path, case, cache, act_group))


class Paged:
    """`ContinuousBatchingPipeline`, a step at a time. It samples (greedily) itself and keeps the logits."""

    def __init__(self, path: str, case: Any, context: int, properties: dict[str, Any]) -> None:
        import openvino_genai as genai

        self.genai, self.case = genai, case
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = max(CHUNK, case.sequences * min(case.prompt, CHUNK))
        scheduler.max_num_seqs = case.sequences
        scheduler.num_kv_blocks = case.sequences * (-(-context // 32) + 1)
        scheduler.enable_prefix_caching = False
        self.pipe = genai.ContinuousBatchingPipeline(path, scheduler, "CPU", properties)
        self.config = genai.GenerationConfig(max_new_tokens=context - case.prompt, ignore_eos=True, do_sample=False)
        self.handles: list[Any] = []
        self.count = 0

    def prompt(self, prompts: list[list[int]]) -> None:
        import numpy as np
        import openvino as ov

        for handle in self.handles:
            handle.cancel()
        while self.pipe.has_non_finished_requests():
            self.pipe.step()
        self.handles = []
        for prompt in prompts:
            self.handles.append(self.pipe.add_request(self.count, ov.Tensor(np.array([prompt], np.int64)), self.config))
            self.count += 1
        waiting = list(self.handles)
        while waiting:
            self.pipe.step()
            waiting = [h for h in waiting if not h.can_read()]
        self._drain()

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.pipe.step()
        if self._drain() != n:
            raise RuntimeError(f"{n} steps did not give {n} tokens")

    def _drain(self) -> int:
        """Tokens generated for the first sequence since the last call; takes all sequences'
        tokens."""
        got = [sum(len(output.generated_ids) for output in self._read(handle)) for handle in self.handles]
        return got[0]

    def _read(self, handle: Any) -> list[Any]:
        result = []
        while handle.can_read():
            result += handle.read().values()
        return result

    def logits(self) -> Any:
        return None


class Plain:
    """The stateful model in the plain runtime, with the head cut to the last token of a prompt (as GenAI does)."""

    def __init__(self, path: str, case: Any, context: int, properties: dict[str, Any]) -> None:
        import openvino as ov

        core = ov.Core()
        model = core.read_model(f"{path}/openvino_model.xml")
        last_token_only(model)
        self.request = core.compile_model(model, "CPU", properties).create_infer_request()
        self.inputs = {name for port in model.inputs for name in port.names}
        self.last: Any = None

    def _infer(self, tokens: Any) -> None:
        import numpy as np

        rows, n = tokens.shape
        inputs = {"input_ids": tokens, "attention_mask": np.ones((rows, self.length + n), np.int64), "beam_idx": np.arange(rows, dtype=np.int32)}
        if "position_ids" in self.inputs:
            inputs["position_ids"] = np.broadcast_to(np.arange(self.length, self.length + n), (rows, n)).copy()
        self.request.infer(inputs, share_inputs=True, share_outputs=True)
        self.length += n
        self.last = self.request.get_tensor("logits").data[:, -1]

    def prompt(self, prompts: list[list[int]]) -> None:
        import numpy as np

        self.request.reset_state()
        self.length = 0
        tokens = np.array(prompts, np.int64)
        for start in range(0, tokens.shape[1], CHUNK):
            self._infer(tokens[:, start : start + CHUNK])

    def steps(self, n: int) -> None:
        for _ in range(n):
            self._infer(self.last.argmax(axis=1)[:, None])

    def logits(self) -> Any:
        return self.last[0]


def last_token_only(model: Any) -> None:
    """Lets the product with the head take the last row of each prompt only."""
    import numpy as np
    from openvino import opset13 as ops

    node = model.output("logits").get_node().input_value(0).get_node()
    while node.get_type_name() != "MatMul":
        node = node.input_value(0).get_node()
    rows = node.input_value(0)
    last = ops.slice(rows, np.array([-1]), np.array([np.iinfo(np.int64).max]), np.array([1]), np.array([1]))
    node.input(0).replace_source_output(last.output(0))
    model.validate_nodes_and_infer_types()


def describe() -> str:
    import openvino
    import openvino_genai

    return f"OpenVINO {openvino.__version__}, GenAI {openvino_genai.__version__}: its KV cache is u8 but where f16 is asked for at depth"
