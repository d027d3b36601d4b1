//! A table of errors: each names its place (file, option or field), the value at fault, and the
//! remedy.

use super::{Case, fails};
use std::fs;

/// Place, value and remedy.
type Says = [&'static str; 3];

/// A field of `config.json`, its value as JSON (`null`: the field is missing), and the error.
const FIELDS: &[(&str, &str, Says)] = &[
    ("model_type", r#""lama""#, ["config.json", "`lama`", "supported are"]),
    ("hidden_size", "null", ["config.json", "`hidden_size`", "use the model's own config.json"]),
    ("hidden_size", r#""x""#, ["config.json", r#"`hidden_size` is "x""#, "it must be"]),
    ("hidden_size", "-1", ["config.json", "`hidden_size` is -1", "it must be"]),
    ("hidden_size", "1.5", ["config.json", "`hidden_size` is 1.5", "it must be"]),
    ("num_attention_heads", "0", ["config.json", "`num_attention_heads` is 0", "it must be"]),
    ("num_key_value_heads", "3", ["config.json", "`num_key_value_heads` is 3", "a divisor of `num_attention_heads`"]),
    ("num_hidden_layers", "0", ["config.json", "`num_hidden_layers` is 0", "it must be"]),
    ("vocab_size", "0", ["config.json", "`vocab_size` is 0", "it must be"]),
    ("max_position_embeddings", "0", ["config.json", "`max_position_embeddings` is 0", "it must be"]),
    ("rms_norm_eps", "2", ["config.json", "`rms_norm_eps` is 2", "at least 0 and less than 1"]),
    ("rms_norm_eps", r#""x""#, ["config.json", r#"`rms_norm_eps` is "x""#, "it must be"]),
    ("hidden_act", r#""swish2""#, ["config.json", r#"`hidden_act` is "swish2""#, "supported are"]),
    ("tie_word_embeddings", r#""yes""#, ["config.json", r#"`tie_word_embeddings` is "yes""#, "it must be"]),
    ("bos_token_id", r#""x""#, ["config.json", r#"`bos_token_id` is "x""#, "a token id"]),
    ("eos_token_id", r#"[0, "y"]"#, ["config.json", r#"`eos_token_id` is "y""#, "must be a token id"]),
    ("head_dim", "7", ["config.json", "`head_dim` is 7", "it must be"]),
    ("attn_logit_softcapping", "50.0", ["config.json", "`attn_logit_softcapping` is 50.0", "remove it"]),
    ("num_experts", "8", ["config.json", "`num_experts` is 8", "remove it"]),
    ("sliding_window", "16", ["config.json", "`sliding_window` is 16", "remove it"]),
    ("residual_multiplier", "0.22", ["config.json", "`residual_multiplier` is 0.22", "remove it"]),
    ("quantization_config", r#"{"quant_method": "aqlm"}"#, ["config.json", "aqlm", "use the unquantized checkpoint"]),
    ("rope_scaling", r#"{"rope_type": "spiral", "factor": 2.0}"#, ["config.json", "spiral", "supported"]),
    ("rope_theta", r#""x""#, ["config.json", r#"`rope_theta` is "x""#, "it must be"]),
    ("architectures", r#"["NoSuchModel"]"#, ["config.json", "NoSuchModel", "supported"]),
];

/// A file of the checkpoint, its contents, and the error.
const FILES: &[(&str, &str, Says)] = &[
    ("config.json", r#"{"hidden_size": "#, ["config.json", "line 1", "download it again"]),
    ("config.json", "[1]", ["config.json", "a list", "use the model's own config.json"]),
    ("config.json", r#"{"rms_norm_eps": NaN}"#, ["config.json", "line 1 column 18", "JSON has no NaN"]),
    ("config.json", r#"{"a": 1,}"#, ["config.json", "trailing comma", "remove the comma"]),
    ("model.safetensors", "", ["model.safetensors", "is empty", "download it again"]),
    (
        "model.safetensors",
        "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n",
        ["model.safetensors", "Git LFS pointer", "git lfs pull"],
    ),
    ("model.safetensors", "<!DOCTYPE html><html></html>", ["model.safetensors", "a web page", "download it again"]),
    ("tokenizer.json", r#"{"#, ["tokenizer.json", "line 1 column 1", "download it again"]),
    ("tokenizer.json", "[]", ["tokenizer.json", "line 1 column 2", "download the file again"]),
    ("generation_config.json", "[]", ["generation_config.json", "not a JSON object", "correct it"]),
    ("generation_config.json", r#"{"temperature": -1}"#, ["generation_config.json", "`temperature` is -1", "positive"]),
    ("generation_config.json", r#"{"top_p": 2}"#, ["generation_config.json", "`top_p` is 2", "from 0 to 1"]),
    ("modules.json", r#"{}"#, ["modules.json", "not a list", "supported are"]),
];

/// A command line, separated by spaces, and the error.
const COMMANDS: &[(&str, Says)] = &[
    ("compile ck -o m.so -q --target x87", ["target", "`x87`", "targets are"]),
    ("compile ck -o m.so -q --target native,x87", ["target", "`x87`", "targets are"]),
    ("compile ck -o m.so -q --format q9", ["--format", "q9", "quantized formats are"]),
    ("compile ck -o m.so -q --format Q4_K_M", ["--format", "`Q4_K_M`", "give one format"]),
    ("compile ck -o m.so -q --format f16", ["--format", "f16", "--dtype"]),
    ("compile ck -o m.so -q --group 33", ["--group", "'33'", "32, 64 or 128"]),
    ("compile ck -o m.so -q --error-budget 2", ["--error-budget", "'2'", "from 0 (exact) to 1"]),
    ("compile ck -o m.so -q --max-context 0", ["context", "0 tokens", "give 1 to 256"]),
    ("compile ck -o m.so -q --max-context 999999999", ["context", "999999999", "give 1 to 256"]),
    ("compile ck -o m.so -q --w4 --w8", ["--w4", "--w8", "cannot be used"]),
    ("compile ck -o m.so -q --act int8", ["--act int8", "integer weights", "--w4"]),
    ("compile ck -o m.so -q --act fp8 --w4", ["--act fp8", "8-bit float", "--fp8"]),
    ("compile ck -o m.so -q --dtype f64", ["--dtype", "f64", "possible values"]),
    ("compile ck -o m.so -q --kv int3", ["--kv", "int3", "possible values"]),
    ("compile ck -o m.so -q --lora absent", ["absent/adapter_config.json", "is missing", "folder of an adapter"]),
    ("compile ck -o m.so -q --nonsense", ["--nonsense", "unexpected", "--help"]),
    ("compile ck -o m.so -q --draft-head", ["ck", "draft heads of LlamaForCausalLM", "leave out --draft-head"]),
    ("compile ck -o m.so -q --lora-slots 0", ["--lora-slots", "'0'", "from 1 to 4096"]),
    ("compile ck -o m.so -q --lora-slots 2 --lora-targets nothing", ["--lora-targets", "`nothing`", "possible are"]),
    ("compile absent -o m.so", ["absent", "no such file", "hf://absent"]),
    ("compile meta/llama -o m.so", ["meta/llama", "no such file", "llmcc pull meta/llama"]),
    ("verify ck", ["ck", "checkpoint", "compile it first"]),
    ("run ck -p x", ["ck", "checkpoint", "compile it first"]),
    ("bench ck/config.json", ["ck/config.json", "not an artifact", "llmcc compile"]),
    ("run ck/model.safetensors --ids 1", ["ck/model.safetensors", "it is a checkpoint", "compile it first"]),
    ("compile ck -o ck/model.safetensors", ["ck/model.safetensors", "replace", "give another name"]),
    ("frobnicate", ["subcommand", "frobnicate", "--help"]),
];

#[test]
fn each_error_names_place_value_and_remedy() {
    assert!(FIELDS.len() + FILES.len() + COMMANDS.len() >= 60, "60 errors");
    for (field, value, says) in FIELDS {
        let case = Case::new();
        let value: serde_json::Value = serde_json::from_str(value).expect("JSON");
        case.edit_config(|c| {
            let fields = c.as_object_mut().expect("an object");
            match &value {
                serde_json::Value::Null => drop(fields.remove(*field)),
                value => drop(fields.insert((*field).to_owned(), value.clone())),
            }
        });
        fails(&case, &case.compile(&[]), says);
    }
    for (name, contents, says) in FILES {
        let case = Case::new();
        fs::write(case.path(name), contents).expect("written");
        fails(&case, &case.compile(&[]), says);
    }
    let case = Case::new();
    for (line, says) in COMMANDS {
        let args: Vec<&str> = line.split(' ').collect();
        fails(&case, &case.0.llmcc(&args), says);
    }
}
