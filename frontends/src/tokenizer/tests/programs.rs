//! Models in the files of the programs that trained them.

use super::*;

/// The vocabulary beside a file of llama2.c is that of its tokenizer.model.
#[test]
fn llama2c_vectors() {
    let Some(dir) = shared("stories260K") else { return };
    let ckpt = Checkpoint::open(&dir.join("stories260K.bin")).unwrap();
    let text = TextAssets::load(&ckpt).unwrap();
    let config = llmcc_text::Config::parse(&text.text_config.to_string()).unwrap();
    let json = String::from_utf8(text.tokenizer_json.unwrap()).unwrap();
    let t = llmcc_text::Tokenizer::new(&json, &config).unwrap();
    let expected: Value =
        serde_json::from_slice(&std::fs::read(dir.join("expected/prompt_ids.json")).unwrap()).unwrap();
    // Its program writes the first token before any text.
    let ids = t.encode(expected["prompt"].as_str().unwrap(), true).unwrap();
    assert_eq!(serde_json::to_value(ids).unwrap(), expected["ids"]);
    let file = std::fs::read(dir.join("tok512.bin")).unwrap();
    let says = |file: &[u8], vocab: usize| llama2c::to_tokenizer_json(file, vocab).unwrap_err();
    assert_eq!(says(&file, 513), "it has 512 whole pieces, but the model has 513 tokens");
    assert_eq!(says(&file[..file.len() - 1], 512), "piece 511 is no text of 3 bytes");
    assert_eq!(says(&file[..3], 512), "the file has no header");
}

/// Beside `params.json` no settings give the tokens that begin and end a text.
#[test]
fn meta_s_own_files_begin_and_end_as_its_program_does() {
    let Ok(model) = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/sentencepiece/bpe"))
    else {
        panic!("the corpus")
    };
    let Some(dir) = shared("llama_pth_random") else { return };
    let folder = Folder::new();
    for (from, to) in [("demo_rand_params.pth", "consolidated.00.pth"), ("demo_config.json", "params.json")] {
        folder.write(to, std::fs::read(dir.join(from)).unwrap());
    }
    folder.write("tokenizer.model", &model);
    let load = || TextAssets::load(&Checkpoint::open(&folder.0).unwrap()).unwrap().text_config;
    let text = load();
    let json = from_sentencepiece(&model).unwrap();
    let first = json["added_tokens"].as_array().unwrap().iter().find(|t| t["content"] == "<s>").unwrap()["id"].clone();
    assert_eq!((&text["bos_token_id"], &text["add_bos"]), (&first, &json!(true)));
    folder.write("tokenizer_config.json", "{}");
    assert_eq!(load()["add_bos"], false);
}
