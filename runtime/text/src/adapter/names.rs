//! Names of an adapter's modules in its base: an adapter has the names of the model in memory at
//! training time, and they differ between files and over time.

/// Parts of names in memory, with their counterparts in files.
const RENAMED: &[(&str, &str)] = &[
    (".mlp.shared_experts.", ".mlp.shared_mlp."),
    (".mlp.shared_experts.", ".mlp.shared_expert."),
    (".mlp.", ".block_sparse_moe."),
    (".indexer.weights_proj", ".indexers_proj"),
    (".self_attn.forget_gate.", ".self_attn."),
    (".self_attn.gate_proj", ".self_attn.linear_gate"),
    (".self_attn.g_proj", ".self_attn.gate_proj"),
    (".self_attn.o_proj", ".attention.dense"),
    (".self_attn.", ".attention."),
];

/// All names of a module or tensor, its own first: the first part may be left out, or one more be there; the model
/// of texts in one of images, too, has had several places.
pub fn names(own: &str) -> Vec<String> {
    let within = own.replacen("language_model.", "", 1);
    let inner = within.strip_prefix("model.").map(|rest| format!("model.language_model.{rest}"));
    let outer = format!("language_model.{within}");
    let mut all: Vec<String> = [own.to_string(), within].into_iter().chain(inner).chain([outer]).collect();
    for (from, to) in RENAMED {
        let renamed: Vec<String> =
            all.iter().filter(|name| name.contains(from)).map(|name| name.replacen(from, to, 1)).collect();
        all.extend(renamed);
    }
    let with_parts = |name: &String| {
        let shorter = name.split_once('.').map(|(_, rest)| rest.to_string());
        [Some(name.clone()), shorter, Some(format!("model.{name}"))].into_iter().flatten()
    };
    all.iter().flat_map(with_parts).collect()
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn names_of_files() {
        let q = "layers.0.self_attn.q_proj";
        for (module, tensor, same) in [
            (format!("model.{q}"), format!("model.{q}"), true),
            (format!("model.language_model.{q}"), format!("model.{q}"), true),
            (format!("model.language_model.{q}"), format!("language_model.model.{q}"), true),
            (format!("model.{q}"), format!("model.language_model.{q}"), true),
            (format!("model.{q}"), q.to_string(), true),
            (q.to_string(), format!("model.{q}"), true),
            (q.replace('0', "1"), format!("model.{q}"), false),
            (format!("model.{q}"), format!("model.visual.{q}"), false),
            ("model.layers.1.mlp.experts".into(), "model.layers.1.block_sparse_moe.experts".into(), true),
            ("a.mlp.shared_experts.up_proj".into(), "a.mlp.shared_mlp.up_proj".into(), true),
            ("a.self_attn.forget_gate.f_proj".into(), "a.attention.f_proj".into(), true),
        ] {
            assert_eq!(names(&module).contains(&tensor), same, "{module} {tensor}");
            assert_eq!(names(&module)[0], module);
        }
    }
}
