//! Images in prompts of `llmcc run`.

use crate::common::{Folder, fixture, text};
use serde_json::{Value, json};
use std::path::Path;

/// The token that stands for a row of an image.
const IMAGE: u64 = 127;

/// LLaVA's fixture with a tokenizer of words, and a template that marks images, in `ck`; its pictures in `.`.
fn folder() -> Folder {
    let folder = Folder::new();
    std::fs::create_dir(folder.at("ck")).expect("folder");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("llava").join(name), folder.at("ck").join(name)).expect("fixture");
    }
    let words = |i: u64| if i == IMAGE { "<image>".to_string() } else { format!("w{i}") };
    let vocab: serde_json::Map<String, Value> = (0..128).map(|i| (words(i), json!(i))).collect();
    let image = json!({
        "id": IMAGE, "content": "<image>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true,
    });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [image], "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "w0" },
    });
    let template = "{% for m in messages %}w9 {% for part in m['content'] %}{% if part['type'] == 'image' %}<image>\
        {% else %} {{ part['text'] }} {% endif %}{% endfor %}w8 {% endfor %}";
    let of_tokenizer = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template });
    let processor = json!({
        "image_processor_type": "CLIPImageProcessor", "size": { "shortest_edge": 24 },
        "crop_size": { "height": 24, "width": 24 }, "resample": 3, "do_pad": false,
    });
    let files = [
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", of_tokenizer),
        ("preprocessor_config.json", processor),
    ];
    for (name, json) in files {
        std::fs::write(folder.at("ck").join(name), json.to_string()).expect("written");
    }
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens/pictures");
    for name in ["rgb.png", "wide.png", "halved.jpg"] {
        std::fs::copy(pictures.join(name), folder.at(name)).expect("a picture");
    }
    folder
}

/// The tokens that `run` makes.
fn tokens(folder: &Folder, args: &[&str]) -> Vec<i64> {
    let start = ["run", "m.so", "--threads", "1", "-n", "6", "--ignore-eos", "--json"];
    let said: Value = serde_json::from_str(&folder.says(&[], &[&start, args].concat())).expect("JSON");
    said["tokens"].as_array().expect("tokens").iter().map(|t| t.as_i64().expect("a token")).collect()
}

fn refused(folder: &Folder, args: &[&str]) -> String {
    let done = folder.llmcc(args);
    assert!(!done.status.success(), "{args:?}");
    text(&done.stderr)
}

#[test]
fn prompts_have_images() {
    let folder = folder();
    folder.says(&[], &["compile", "ck", "-o", "m.so", "--quiet", "--with-image"]);
    let image = ["--image", "rgb.png"];
    let marked = tokens(&folder, &[&image[..], &["-p", "w5 <image> w44"]].concat());
    // The same by ids, and by a template.
    let places = vec![IMAGE.to_string(); 36].join(",");
    assert_eq!(tokens(&folder, &[&image[..], &["--ids", &format!("5,{places},44")]].concat()), marked);
    assert_eq!(tokens(&folder, &["--image", "rgb.png", "--chat", "-p", "w5"]), {
        tokens(&folder, &["--image", "rgb.png", "--ids", &format!("9,{places},5,8")])
    });
    // Without a marker it comes first, and another image is another text.
    let first = tokens(&folder, &[&image[..], &["-p", "w5 w44"]].concat());
    assert_eq!(first, tokens(&folder, &[&image[..], &["-p", "<image> w5 w44"]].concat()));
    let others = [["wide.png", "rgb.png"], ["rgb.png", "wide.png"], ["halved.jpg", "rgb.png"]]
        .map(|[a, b]| tokens(&folder, &["--image", a, "--image", b, "-p", "w5 <image> w7 <image> w44 w9 w13"]));
    assert!(others[0] != others[1] || others[1] != others[2], "{others:?}");
    assert_eq!(tokens(&folder, &["-p", "w5 w44"]).len(), 6);

    let run = |more: &[&str]| refused(&folder, &[&["run", "m.so"], more].concat());
    let said = run(&["--image", "rgb.png", "-p", "w5 <image> <image>"]);
    assert!(said.contains("the prompt has 2 <image>, but 1 images are given"), "{said}");
    let said = run(&["-p", "w5 <image>"]);
    assert!(said.contains("stand for rows of images, and 0 rows are given"), "{said}");
    let said = run(&["--image", "ck/config.json", "-p", "w5"]);
    assert!(said.contains("ck/config.json: this is no image in a format that is read"), "{said}");
    let said = run(&["--image", "none.png", "-p", "w5"]);
    assert!(said.contains("none.png"), "{said}");
    assert!(run(&["--image", "rgb.png", "--chat"]).contains("--image belongs to a single message"));
}

#[test]
fn other_models_see_nothing() {
    let folder = folder();
    let said = text(&folder.llmcc(&["compile", "ck", "-o", "m.so", "--no-golden"]).stderr);
    assert!(said.contains("`vision_config`") && said.contains("--with-image reads"), "{said}");
    let said = refused(&folder, &["run", "m.so", "--image", "rgb.png", "-p", "w5"]);
    assert!(said.contains("sees no images") && said.contains("--with-image"), "{said}");
    let llama = fixture("llama3").to_string_lossy().into_owned();
    let said = refused(&folder, &["compile", &llama, "-o", "n.so", "--with-image"]);
    assert!(
        said.contains("`llama` has no tower for images that is supported; supported are towers of `llava`"),
        "{said}"
    );
    assert!(said.contains("leave out --with-image"), "{said}");
    let said = refused(&folder, &["compile", "ck", "-o", "n.so", "--with-image", "--max-context", "30"]);
    assert!(said.contains("an image has 36 tokens, but the longest sequence has 30"), "{said}");
}

/// A processor may not ask for other steps, nor for sizes that the tower does not see.
#[test]
fn other_processors_are_refused() {
    let folder = folder();
    for (field, value, says) in [
        ("do_pan_and_scan", json!(true), "`do_pan_and_scan` is true, but only false is supported"),
        ("resample", json!(1), "`resample` is 1; expected 2 (bilinear) or 3 (bicubic)"),
        ("crop_size", json!(20), "images become 20x20 pixels, but the tower sees 24x24"),
        ("size", json!({ "longest_edge": 5 }), "`size` is"),
        ("image_std", json!([1.0, 0.0, 1.0]), "three numbers other than 0"),
    ] {
        let mut processor = json!({ "size": 24, "crop_size": 24, "image_mean": [0.5, 0.5, 0.5] });
        processor[field] = value;
        std::fs::write(folder.at("ck/preprocessor_config.json"), processor.to_string()).expect("written");
        let said = refused(&folder, &["compile", "ck", "-o", "m.so", "--no-golden", "--with-image"]);
        assert!(said.contains(says) && said.contains("preprocessor_config.json"), "{field}: {said}");
    }
}
