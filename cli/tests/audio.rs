//! `llmcc run --audio`: texts of what is said in WAV files, as Transformers writes them.

use crate::common::{self, Folder, text};
use llmcc_frontends::checkpoint::Checkpoint;
use serde_json::{Value, json};
use std::path::Path;

const RATE: usize = 16000;

/// `noise` of `tests/goldens/sounds.py`, a quarter as loud.
fn noise(n: usize, seed: u64) -> Vec<i16> {
    let number = |i: u64| {
        let z = seed.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((((z ^ z >> 31) >> 48) as i64 - 32768) >> 2) as i16
    };
    (1..=n as u64).map(number).collect()
}

/// A WAV file of 16 bits.
fn wav(samples: &[i16], rate: u32) -> Vec<u8> {
    let (data, mut out) = (2 * samples.len() as u32, b"RIFF".to_vec());
    out.extend((36 + data).to_le_bytes());
    out.extend(b"WAVEfmt ");
    out.extend(16u32.to_le_bytes());
    out.extend([1u16, 1].iter().flat_map(|x| x.to_le_bytes()));
    out.extend([rate, 2 * rate].iter().flat_map(|x| x.to_le_bytes()));
    out.extend([2u16, 16].iter().flat_map(|x| x.to_le_bytes()));
    out.extend(b"data");
    out.extend(data.to_le_bytes());
    out.extend(samples.iter().flat_map(|x| x.to_le_bytes()));
    out
}

/// The artifact of a fixture.
fn compiled(name: &str) -> Folder {
    let folder = Folder::new();
    folder.compile(name, "m.so", &["--dtype", "f32", "--act", "f32", "--kv", "f32"]);
    folder
}

/// Numbers of a golden.
fn golden(name: &str, tensor: &str) -> Vec<i32> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens").join(name).join("golden.safetensors");
    let file = Checkpoint::open(&path).expect("a golden");
    let data = file.tensor(tensor).expect("a tensor").data;
    data.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
}

fn heard(folder: &Folder, more: &[&str]) -> Value {
    let said = folder.says(&[], &[&["run", "m.so", "--audio", "a.wav", "--json", "-n", "24"], more].concat());
    serde_json::from_str(&said).expect("a document")
}

/// The tokens that Transformers' feature extractor and `generate` make of the sound, the language found by the model.
#[test]
fn sounds_become_the_tokens_of_transformers() {
    for name in ["whisper", "whisper_128"] {
        let folder = compiled(name);
        let sound = noise(RATE, golden(name, "sound")[0] as u64);
        std::fs::write(folder.at("a.wav"), wav(&sound, RATE as u32)).expect("written");
        let said = heard(&folder, &[]);
        let clip = &said["clips"][0];
        assert_eq!(clip["prompt"], json!(golden(name, "heard_starts")), "{name}");
        assert_eq!(clip["tokens"], json!(golden(name, "heard")), "{name}");
        let spelled: Vec<String> = golden(name, "heard").iter().map(|id| format!("w{id}")).collect();
        assert_eq!(said["text"], json!(spelled.join(" ")), "{name}");
        assert_eq!(
            folder.says(&[], &["run", "m.so", "--audio", "a.wav", "-n", "24"]),
            format!("{}\n", spelled.join(" "))
        );
        assert!(folder.says(&[], &["inspect", "m.so"]).contains("an encoder (`encode`) reads a clip of sound"));
        assert!(folder.says(&[], &["verify", "m.so"]).contains("golden"));
        if name == "whisper_128" {
            languages_and_tasks(&folder);
            long_sounds(&folder, &sound, &clip["tokens"]);
        }
        refusals(&folder, name);
    }
}

fn languages_and_tasks(folder: &Folder) {
    let prompt = |more: &[&str]| heard(folder, more)["clips"][0]["prompt"].clone();
    assert_eq!(prompt(&["--language", "fr"]), json!([101, 104, 107, 111]));
    assert_eq!(prompt(&["--language", "<|EN|>", "--task", "translate"]), json!([101, 102, 106, 111]));
}

/// Two clips (the second one is silence after a sample), and the same sound at another rate.
fn long_sounds(folder: &Folder, sound: &[i16], tokens: &Value) {
    let longer: Vec<i16> = sound.iter().copied().chain([0]).collect();
    std::fs::write(folder.at("a.wav"), wav(&longer, RATE as u32)).expect("written");
    let said = heard(folder, &[]);
    assert_eq!((&said["clips"][0]["tokens"], &said["clips"][1]["start"]), (tokens, &json!(1.0)));
    let alone = |sound: &[i16]| {
        std::fs::write(folder.at("a.wav"), wav(sound, RATE as u32)).expect("written");
        heard(folder, &[])["clips"][0]["tokens"].clone()
    };
    assert_eq!(said["clips"][1]["tokens"], alone(&[0]));
    assert_eq!(said["clips"][1]["tokens"], alone(&[]), "no samples are silence");
    std::fs::write(folder.at("a.wav"), wav(&sound[..8000], 8000)).expect("written");
    assert_eq!(heard(folder, &[])["clips"].as_array().map(Vec::len), Some(1), "a second of 8000 samples");
}

fn refusals(folder: &Folder, name: &str) {
    let refused = |args: &[&str], want: &str| {
        let out = folder.llmcc(args);
        let said = text(&out.stderr);
        assert!(!out.status.success() && out.stdout.is_empty() && said.contains(want), "{args:?}: {said}");
    };
    std::fs::write(folder.at("no.wav"), b"ID3\x04 no sound").expect("written");
    refused(&["run", "m.so", "--audio", "no.wav"], "give a WAV file");
    refused(&["run", "m.so", "--audio", "none.wav"], "none.wav");
    refused(&["run", "m.so", "-p", "w1"], "give --audio FILE");
    refused(&["run", "m.so", "--language", "en", "-p", "x"], "--audio");
    let several = name == "whisper_128";
    let unknown = if several { "it knows de, en, fr, ja" } else { "one language alone" };
    std::fs::write(folder.at("a.wav"), wav(&[0; 16], RATE as u32)).expect("written");
    refused(&["run", "m.so", "--audio", "a.wav", "--language", "xx"], unknown);
    let unknown = if several { "it has transcribe, translate" } else { "one task" };
    refused(&["run", "m.so", "--audio", "a.wav", "--task", "sing"], unknown);
}

/// A model without an encoder of sounds says so.
#[test]
fn other_models_hear_nothing() {
    let folder = Folder::new();
    folder.compile("llama", "m.so", &[]);
    std::fs::write(folder.at("a.wav"), wav(&[0; 16], 16000)).expect("written");
    let out = folder.llmcc(&["run", "m.so", "--audio", "a.wav"]);
    assert!(!out.status.success() && text(&out.stderr).contains("does not read sounds"), "{}", text(&out.stderr));
}

/// Files that do not fit the model are refused by name.
#[test]
fn preprocessors_of_other_models_are_refused() {
    let folder = Folder::new();
    std::fs::create_dir(folder.at("ck")).expect("folder");
    for file in ["config.json", "model.safetensors", "generation_config.json"] {
        std::fs::copy(common::fixture("whisper").join(file), folder.at("ck").join(file)).expect("fixture");
    }
    let own = std::fs::read(common::fixture("whisper").join("preprocessor_config.json")).expect("a file");
    let own: Value = serde_json::from_slice(&own).expect("JSON");
    for (key, value, want) in [
        ("feature_size", json!(128), "not 80"),
        ("chunk_length", json!(30), "not as long as `max_source_positions`"),
        ("feature_extractor_type", json!("Wav2Vec2FeatureExtractor"), "`WhisperFeatureExtractor`"),
        ("dither", json!(0.5), "noise"),
        ("hop_length", json!("x"), "not a positive number"),
    ] {
        let mut changed = own.clone();
        changed[key] = value;
        std::fs::write(folder.at("ck/preprocessor_config.json"), changed.to_string()).expect("written");
        let out = folder.llmcc(&["compile", "ck", "-o", "m.so"]);
        let said = text(&out.stderr);
        assert!(!out.status.success() && said.contains(key) && said.contains(want), "{key}: {said}");
    }
}
