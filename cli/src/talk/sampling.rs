//! How tokens are chosen: as options say, else as the model does, else the most probable one.

use crate::args::SamplingArgs;
use crate::loaded::GenOptions;
use crate::manifest::Manifest;

/// Tokens of a text that neither the user nor the model limits.
const USUAL_TOKENS: u32 = 256;

/// The options of a generation; of a conversation, answers are as long as they are.
pub fn options(s: &SamplingArgs, manifest: &Manifest, chat: bool) -> GenOptions {
    let own = |name: &str| manifest.generation.get(name).filter(|_| !s.greedy);
    let real = |given: Option<f32>, name: &str, usual: f32| {
        given.or_else(|| own(name)?.as_f64().map(|x| x as f32)).unwrap_or(usual)
    };
    let count = |name: &str| own(name)?.as_u64().and_then(|n| u32::try_from(n).ok());
    // 0: the runtime knows the model's limits, and that of its context.
    let limited = chat || own("max_new_tokens").or_else(|| own("max_length")).is_some();
    GenOptions {
        max_tokens: s.max_tokens.unwrap_or(if limited { 0 } else { USUAL_TOKENS }),
        temperature: real(s.temperature, "temperature", 0.0),
        top_k: s.top_k.or_else(|| count("top_k")).unwrap_or(0),
        top_p: real(s.top_p, "top_p", 1.0),
        min_p: real(s.min_p, "min_p", 0.0),
        repetition_penalty: real(s.repetition_penalty, "repetition_penalty", 1.0),
        repetition_window: count("repetition_window").unwrap_or(0),
        seed: s.seed,
        stop: s.stop.clone(),
        ignore_eos: s.ignore_eos,
        defaults: !s.greedy,
        ..GenOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest(generation: serde_json::Value) -> Manifest {
        Manifest { generation: generation.as_object().cloned().unwrap_or_default(), ..Manifest::default() }
    }

    #[test]
    fn options_come_before_the_model_s_own_settings() {
        let own = manifest(json!({ "temperature": 0.7, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.1 }));
        let plain = options(&SamplingArgs::default(), &own, false);
        assert_eq!((plain.temperature, plain.top_k, plain.top_p, plain.repetition_penalty), (0.7, 40, 0.9, 1.1));
        assert_eq!((plain.max_tokens, plain.defaults), (256, true));
        let given = SamplingArgs { temperature: Some(0.0), top_k: Some(3), ..SamplingArgs::default() };
        let given = options(&given, &own, false);
        assert_eq!((given.temperature, given.top_k, given.top_p), (0.0, 3, 0.9));
        let greedy = options(&SamplingArgs { greedy: true, ..SamplingArgs::default() }, &own, false);
        assert_eq!((greedy.temperature, greedy.top_k, greedy.top_p, greedy.defaults), (0.0, 0, 1.0, false));
        assert_eq!(options(&SamplingArgs::default(), &manifest(json!({})), false).temperature, 0.0);
    }

    #[test]
    fn answers_end_by_themselves_and_texts_by_a_limit() {
        let most = |given: Option<u32>, own: serde_json::Value, chat: bool| {
            options(&SamplingArgs { max_tokens: given, ..SamplingArgs::default() }, &manifest(own), chat).max_tokens
        };
        assert_eq!(most(None, json!({}), false), 256);
        assert_eq!(most(None, json!({}), true), 0);
        assert_eq!(most(None, json!({ "max_new_tokens": 9 }), false), 0, "the runtime's matter");
        assert_eq!((most(Some(5), json!({ "max_length": 9 }), false), most(Some(5), json!({}), true)), (5, 5));
    }
}
