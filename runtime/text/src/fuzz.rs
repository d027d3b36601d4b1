//! Fuzz targets: arbitrary bytes in, no panic, hang or exhausted memory out.

use crate::adapter::Adapter;
use crate::adapter::settings::Settings;
use crate::{Config, Template, check, local_time};

/// A `tokenizer.json`: if it passes the check, it works or returns an error.
pub fn tokenizer(data: &[u8]) {
    if check::tokenizer(data).is_ok() {
        let _ = check::try_all(data, 60);
    }
}

/// A chat template.
pub fn template(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let config = Config {
        bos_token: Some("<s>".into()),
        templates: vec![("default".into(), source.into())],
        ..Config::default()
    };
    if let Ok(template) = Template::new(&config, local_time) {
        let _ = template.trials();
    }
}

/// The text configuration of an artifact.
pub fn text_config(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = Config::parse(text);
    }
}

/// The tensors of an adapter.
pub fn adapter_tensors(data: &[u8]) {
    let config = serde_json::json!({ "peft_type": "LORA", "r": 2 });
    if let Ok(settings) = Settings::parse(&config)
        && let Ok(adapter) = Adapter::parse(data, &settings)
    {
        for (module, f) in &adapter.modules {
            assert!(f.a.len() == f.rank * f.inputs && f.b.len() == f.rank * f.outputs, "{module}");
        }
    }
}
