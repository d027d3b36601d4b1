use super::settings::Settings;
use super::*;
use serde_json::json;

/// A safetensors file of f32 matrices.
fn file(tensors: &[(&str, [usize; 2], Vec<f32>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), vec![]);
    for (name, shape, values) in tensors {
        let from = data.len();
        data.extend(values.iter().flat_map(|x| x.to_le_bytes()));
        header.insert((*name).into(), json!({ "dtype": "F32", "shape": shape, "data_offsets": [from, data.len()] }));
    }
    let header = serde_json::Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

fn settings() -> Settings {
    Settings::parse(&json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 2 })).unwrap()
}

fn table() -> AdapterTable {
    let place = |state, shape, row| PlaceOfRows { state, shape, row };
    AdapterTable {
        slots: 1,
        rank: 2,
        wide: false,
        matrices: vec![AdaptedMatrix {
            name: "model.q.weight".into(),
            inputs: 3,
            outputs: 4,
            a: place(0, [16, 3], 2),
            b: place(1, [16, 2], 1),
            rows: vec![[0, 2, 2], [1, 2, 2]],
        }],
    }
}

#[test]
fn factors_go_to_their_places() {
    let bytes = file(&[
        ("base_model.model.model.q.lora_A.weight", [1, 3], vec![1.0, 2.0, 3.0]),
        ("base_model.model.model.q.lora_B.weight", [4, 1], vec![1.0, 2.0, 3.0, 4.0]),
    ]);
    let adapter = Adapter::parse(&bytes, &settings()).unwrap();
    let placed = table().place(&adapter).unwrap();
    let at = |p: &Placed, row: usize| p.numbers[row * p.columns..][..p.columns].to_vec();
    assert_eq!(at(&placed[0], 2), [1.0, 2.0, 3.0]);
    // Twice the factor, rows 0, 2, 1 and 3, the rank filled up with zeros.
    let rows: Vec<_> = (0..6).map(|row| at(&placed[1], row)).collect();
    assert_eq!(rows, [0.0, 2.0, 6.0, 4.0, 8.0, 0.0].map(|x| vec![x, 0.0]));
    assert!(placed.iter().all(|p| p.numbers.len() == 16 * p.columns));
}

/// Numbers that bf16 lacks are rounded, or kept where there is room for f32.
#[test]
fn factors_are_rounded_where_they_are_to_be() {
    let x = 1.0 + 1.0 / 1024.0;
    let bytes = file(&[
        ("base_model.model.model.q.lora_A.weight", [1, 3], vec![x; 3]),
        ("base_model.model.model.q.lora_B.weight", [4, 1], vec![1.0; 4]),
    ]);
    let adapter = Adapter::parse(&bytes, &settings()).unwrap();
    for (wide, found) in [(false, 1.0), (true, x)] {
        let table = AdapterTable { wide, ..table() };
        assert_eq!(table.place(&adapter).unwrap()[0].numbers[6..9], [found; 3]);
    }
}

#[test]
fn tables_are_read_from_manifests() {
    let text = json!({ "model": "x", "adapters": table() }).to_string();
    assert_eq!(AdapterTable::of(&text).unwrap(), Some(table()));
    assert_eq!(AdapterTable::of("{}").unwrap(), None);
    assert!(AdapterTable::of(r#"{"adapters": 3}"#).is_err());
    assert_eq!(table().kinds(), ["q"]);
}

/// Whatever the bytes of a file are, it is read or refused.
#[test]
fn damaged_files_are_refused() {
    let bytes = file(&[
        ("base_model.model.q.lora_A.weight", [1, 3], vec![1.0; 3]),
        ("base_model.model.q.lora_B.weight", [4, 1], vec![1.0; 4]),
    ]);
    assert!(Adapter::parse(&bytes, &settings()).is_ok());
    for at in 0..bytes.len() {
        for change in [1, 16, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            let adapter = Adapter::parse(&damaged, &settings());
            let _ = adapter.map(|a| table().place(&a));
        }
        let _ = Adapter::parse(&bytes[..at], &settings());
    }
}

#[test]
fn numbers_are_rounded_to_bf16() {
    let back = |x: f32| f32::from_bits(u32::from(bf16(x)) << 16);
    assert_eq!([1.0, -2.5, 0.0].map(back), [1.0, -2.5, 0.0]);
    // Ties to even, and up across a power of two.
    assert_eq!([1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, 1.998].map(back), [1.0, 1.0 + 4.0 / 256.0, 2.0]);
    assert!(back(f32::NAN).is_nan() && back(f32::MAX).is_infinite());
}

/// Adapters loaded at run time are checked against their settings, as merged ones are.
#[test]
fn settings_are_held_against_modules() {
    let bytes = file(&[
        ("base_model.model.model.layers.2.q.lora_A.weight", [1, 3], vec![1.0; 3]),
        ("base_model.model.model.layers.2.q.lora_B.weight", [4, 1], vec![1.0; 4]),
    ]);
    let plain = json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 2 });
    for (key, value, says) in [
        ("target_modules", json!(["q"]), None),
        ("target_modules", json!("model.*q"), None),
        ("target_modules", json!(["v"]), Some("`target_modules` does not name")),
        ("target_modules", json!("layers.*q"), Some("`target_modules` does not name")),
        ("exclude_modules", json!(["layers.2.q"]), Some("`exclude_modules` excludes")),
        ("layers_to_transform", json!([2]), None),
        ("layers_to_transform", json!([1, 3]), Some("no layer in `layers_to_transform`")),
    ] {
        let mut config = plain.clone();
        config[key] = value;
        let found = Adapter::parse(&bytes, &Settings::parse(&config).unwrap());
        match says {
            None => assert!(found.is_ok(), "{config}: {found:?}"),
            Some(says) => assert!(found.as_ref().is_err_and(|(what, _)| what.contains(says)), "{config}: {found:?}"),
        }
    }
    let mut config = plain;
    config["modules_to_save"] = json!(["lm_head"]);
    assert!(Settings::parse(&config).unwrap().only_merged().is_some_and(|why| why.starts_with("`modules_to_save`")));
}
