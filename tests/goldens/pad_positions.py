#!/usr/bin/env python3
"""Transformers' results for texts with the token for padding in them: rows of encoders that count
positions without it.

    python pad_positions.py     # writes ../../frontends/tests/pad_positions.json

For each fixture the ids, and the first and last row of the last layer in float64."""

import json
from pathlib import Path

import torch
import transformers

import weights

HERE = Path(__file__).parent
FIXTURES = ["camembert", "data2vec_text", "flaubert", "ibert", "longformer", "luke", "mpnet", "roberta", "xlm", "xlm_roberta", "xlm_roberta_xl"]


@torch.no_grad()
def rows(name):
    model = transformers.AutoModel.from_pretrained(weights.fixture(name), dtype=torch.float64, attn_implementation="eager").eval()
    pad = 1 if name == "mpnet" else model.config.pad_token_id
    ids = [0, 5, pad, 7, 9, pad, pad, 11, 2]
    y = model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.int64)).last_hidden_state[0]
    return {"fixture": name, "ids": ids, "rows": [[float(f"{x:.5e}") for x in y[i].tolist()] for i in (0, -1)]}


if __name__ == "__main__":
    text = ",\n".join(json.dumps(rows(name)) for name in FIXTURES)
    (HERE / "../../frontends/tests/pad_positions.json").write_text(f"[\n{text}\n]\n")
