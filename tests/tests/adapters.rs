//! Adapters that are loaded while a model runs, against PEFT in f64 and against themselves alone.

use llmcc_cli::session::CompileOptions;
use llmcc_frontends::Adapter;
use llmcc_frontends::slots::AdapterSlots;
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_passes::ActPolicy;
use llmcc_tests::adapters::{adapter, distance, floats, logits, reference, sequence, together, with_slots};
use llmcc_tests::{Artifact, golden, options};
use std::path::Path;

#[test]
fn adapters_are_those_of_peft() {
    for (base, names) in [("base", vec!["all", "some", "one"]), ("gpt2", vec!["conv"])] {
        let artifact = Artifact::compile(&with_slots(base, names.len(), 4));
        let model = artifact.open(2);
        for name in names {
            let (tokens, wanted) = reference(name);
            let adapter = model.adapter_load(&adapter(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
            let whole = logits(&model, adapter, &tokens, tokens.len());
            let far = distance(&floats(&whole), &wanted);
            assert!(far < 3e-6, "{name}: {far}");
            let without = distance(&floats(&logits(&model, 0, &tokens, tokens.len())), &wanted);
            assert!(without > 1e-2, "{name} changes something: {without}");
        }
    }
}

/// Factors that bf16 does not hold are kept by models of f32, unless they are to be half as large.
#[test]
fn factors_are_kept_in_f32() {
    let path = golden("adapters/lora");
    let merged = vec![Adapter { path: path.clone(), scale: 1.0 }];
    let merged = Artifact::compile(&CompileOptions { adapters: merged, ..options(&golden("adapters/base")) });
    let tokens: Vec<i32> = (0..12).map(|i| i * 7 % 32).collect();
    let wanted = floats(&logits(&merged.open(1), 0, &tokens, tokens.len()));
    for (wide, bound) in [(None, 0.0..3e-6), (Some(true), 0.0..3e-6), (Some(false), 1e-4..3e-2)] {
        let with_slots = with_slots("base", 1, 4);
        let slots = with_slots.slots.clone().map(|s| AdapterSlots { wide, ..s });
        let artifact = Artifact::compile(&CompileOptions { slots, ..with_slots });
        let model = artifact.open(2);
        let number = model.adapter_load(&path).expect("loaded");
        let far = distance(&floats(&logits(&model, number, &tokens, tokens.len())), &wanted);
        assert!(bound.contains(&far), "{wide:?}: {far}");
    }
}

/// Weights of other formats, with int8 activations beside the f32 rows that adapters multiply.
#[test]
fn adapters_of_quantized_models() {
    for format in ["w8g32", "w4g32"] {
        let quantized = |o: CompileOptions| CompileOptions {
            weights: Some(Format::parse(format).expect("a format")),
            act: Some(ActPolicy::Int8),
            ..o
        };
        let artifact = Artifact::compile(&quantized(with_slots("base", 1, 4)));
        let model = artifact.open(2);
        let (tokens, wanted) = reference("all");
        let number = model.adapter_load(&adapter("all")).expect("loaded");
        let far = |adapter: i32| distance(&floats(&logits(&model, adapter, &tokens, tokens.len())), &wanted);
        // The error of matrices that the adapter was merged into before they were quantized.
        let merged = vec![Adapter { path: adapter("all"), scale: 1.0 }];
        let merged =
            Artifact::compile(&quantized(CompileOptions { adapters: merged, ..options(&golden("adapters/base")) }));
        let coarse = distance(&floats(&logits(&merged.open(1), 0, &tokens, tokens.len())), &wanted);
        assert!(far(number) < 2.0 * coarse && far(0) > far(number), "{format}: {} {coarse}", far(number));
    }
}

/// Whatever else is in the batch, however prompts are cut, whatever the threads: the same bits.
#[test]
fn company_changes_nothing() {
    let artifact = Artifact::compile(&with_slots("base", 4, 8));
    let (tokens, _) = reference("all");
    let mut first: Option<Vec<Vec<u32>>> = None;
    for threads in [1, 2, 3] {
        let model = artifact.open(threads);
        let before = logits(&model, 0, &tokens, tokens.len());
        let numbers = ["one", "all", "some"].map(|name| model.adapter_load(&adapter(name)).expect("loaded"));
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(logits(&model, 0, &tokens, tokens.len()), before, "adapters of others");
        let adapters = [numbers[1], 0, numbers[2], numbers[0], numbers[1]];
        let alone: Vec<Vec<u32>> = adapters.iter().map(|a| logits(&model, *a, &tokens, tokens.len())).collect();
        for (adapter, alone) in adapters.iter().zip(&alone) {
            for chunk in [1, 3, 7] {
                assert_eq!(&logits(&model, *adapter, &tokens, chunk), alone, "chunks of {chunk}");
            }
        }
        together(&model, &adapters, &tokens, &alone);
        match &first {
            None => first = Some(alone),
            Some(first) => assert_eq!(first, &alone, "{threads} threads"),
        }
    }
}

#[test]
fn slots_are_used_again() {
    let artifact = Artifact::compile(&with_slots("base", 1, 4));
    let model = artifact.open(1);
    let (tokens, _) = reference("all");
    let fails = |result: Result<i32, llmcc_cli::Error>, what: &str| {
        let message = result.err().unwrap_or_else(|| panic!("no error: {what}")).to_string();
        assert!(message.contains(what), "{message}");
    };
    let first = model.adapter_load(&adapter("all")).expect("loaded");
    let wanted = logits(&model, first, &tokens, 5);
    fails(model.adapter_load(&adapter("one")), "all 1 adapters are loaded");
    let seq = sequence(&model, first);
    fails(model.adapter_unload(first).map(|()| 0), "1 sequences use adapter 1");
    model.step(&tokens[..2], &[seq; 2], &[]).expect("a step");
    fails(model.seq_set_adapter(seq, 0).map(|()| 0), "has 2 tokens, which were computed with another adapter");
    model.seq_set_adapter(seq, first).expect("as it is");
    model.seq_free(seq).expect("freed");
    model.adapter_unload(first).expect("unloaded");
    fails(
        model.adapter_unload(first).map(|()| 0),
        "no adapter 1 is loaded; use a number that llmcc_adapter_load returned",
    );
    let empty = model.seq_new().expect("a sequence");
    for wrong in [first, 2, -1, i32::MAX] {
        fails(model.seq_set_adapter(empty, wrong).map(|()| 0), "is loaded");
    }
    // The smaller one leaves nothing of the larger one that was there before.
    let fresh = Artifact::compile(&with_slots("base", 2, 4));
    let fresh = fresh.open(1);
    let small = fresh.adapter_load(&adapter("one")).expect("loaded");
    let second = model.adapter_load(&adapter("one")).expect("loaded");
    assert_eq!(logits(&model, second, &tokens, 20), logits(&fresh, small, &tokens, 20));
    model.adapter_unload(second).expect("unloaded");
    let again = model.adapter_load(&adapter("all")).expect("loaded");
    assert_eq!(logits(&model, again, &tokens, 5), wanted);
}

#[test]
fn generations_have_adapters() {
    use llmcc_cli::loaded::GenOptions;
    let artifact = Artifact::compile(&with_slots("base", 2, 4));
    let model = artifact.open(1);
    let number = model.adapter_load(&adapter("all")).expect("loaded");
    let options = |adapter| GenOptions {
        max_tokens: 12,
        top_p: 1.0,
        ignore_eos: true,
        no_text: true,
        adapter,
        ..GenOptions::default()
    };
    let tokens = |generation: llmcc_cli::loaded::Generation<'_>| -> Vec<i32> {
        generation.map(|p| p.expect("a piece").token).filter(|t| *t >= 0).collect()
    };
    let own = tokens(model.generate(None, &[3, 17, 5], &options(number)).expect("a generation"));
    let plain = tokens(model.generate(None, &[3, 17, 5], &options(0)).expect("a generation"));
    let seq = sequence(&model, number);
    let given = tokens(model.generate(Some(seq), &[3, 17, 5], &options(0)).expect("a generation"));
    assert!(own == given && own != plain, "{own:?} {given:?} {plain:?}");
    assert!(model.generate(None, &[3], &options(2)).is_err_and(|e| {
        e.to_string().contains("no adapter 2 is loaded; use a number that llmcc_adapter_load returned")
    }));
}

/// Adapters that cannot be loaded are refused with a message, and change nothing.
#[test]
fn refusals() {
    let artifact = Artifact::compile(&CompileOptions {
        slots: Some(AdapterSlots {
            count: 2,
            rank: 2,
            wide: Some(false),
            targets: vec!["q_proj".into(), "o_proj".into()],
        }),
        ..options(&golden("adapters/base"))
    });
    let model = artifact.open(1);
    let refused = |path: &Path, what: &str| {
        let message =
            model.adapter_load(path).err().unwrap_or_else(|| panic!("loaded: {}", path.display())).to_string();
        assert!(message.contains(what), "{message}");
    };
    refused(&adapter("all"), "down_proj`, for which the artifact has no room (it has for: q_proj, o_proj)");
    refused(&golden("adapters/dora"), "`use_dora`");
    refused(&golden("adapters/experts"), "`target_parameters`: matrices of all experts have no room for factors");
    refused(&golden("adapters/tokens"), "`trainable_token_indices`: rows of embedding tables are replaced");
    refused(&golden("adapters/rslora"), "save it as safetensors");
    refused(&golden("adapters/embedding"), "merge the adapter into the weights: `llmcc compile --lora`");
    refused(&golden("adapters/saved"), "`modules_to_save`: modules of the base are replaced; merge it");
    refused(&golden("adapters"), "cannot be read");
    let dir = tempfile::tempdir().expect("a folder");
    let write = |tensors: &[(&str, [usize; 2], f32)], rank: usize| {
        use safetensors::{Dtype, tensor::TensorView};
        let data: Vec<Vec<u8>> =
            tensors.iter().map(|(_, [n, k], x)| (0..n * k).flat_map(|_| x.to_le_bytes()).collect()).collect();
        let views = tensors.iter().zip(&data).map(|((name, shape, _), data)| {
            let view = TensorView::new(Dtype::F32, shape.to_vec(), data).expect("a tensor");
            (format!("base_model.model.model.layers.0.self_attn.{name}.weight"), view)
        });
        safetensors::serialize_to_file(views, None, &dir.path().join("adapter_model.safetensors")).expect("written");
        let config = serde_json::json!({ "peft_type": "LORA", "r": rank, "lora_alpha": 2 });
        std::fs::write(dir.path().join("adapter_config.json"), config.to_string()).expect("written");
    };
    let pair = |a, b, x| [("q_proj.lora_A", a, x), ("q_proj.lora_B", b, 1.0)];
    write(&pair([4, 16], [16, 4], 1.0), 4);
    refused(dir.path(), "has rank 4, the artifact has room for rank 2: compile it with `--lora-rank 4`");
    write(&pair([2, 8], [16, 2], 1.0), 2);
    refused(dir.path(), "has 8 inputs and 16 outputs, the model's has 16 and 16");
    write(&pair([2, 16], [16, 2], f32::NAN), 2);
    refused(dir.path(), "has NaN in row 0, column 0");
    write(&pair([2, 16], [16, 2], 3.4e38), 2);
    refused(dir.path(), "has numbers too large for bf16");
    write(&pair([2, 16], [16, 1], 1.0), 2);
    refused(dir.path(), "have no product");
    write(&[("q_proj.lora_A", [2, 16], 1.0)], 2);
    refused(dir.path(), "has only one of its two factors");
    write(&pair([2, 16], [16, 2], 1.0), 1);
    refused(dir.path(), "has rank 2, but its settings say 1");
    std::fs::write(dir.path().join("adapter_model.safetensors"), [9; 30]).expect("written");
    refused(dir.path(), "is not a safetensors file");
    write(&pair([2, 16], [16, 2], 1.0), 2);
    assert_eq!(model.adapter_load(dir.path()).expect("loaded"), 1, "failures took no slots");
    let file = dir.path().join("adapter_model.safetensors");
    assert_eq!(model.adapter_load(&file).expect("loaded"), 2, "the file alone");
    let plain = Artifact::compile(&options(&golden("adapters/base")));
    let plain = plain.open(1);
    assert!(plain.adapter_load(dir.path()).is_err_and(|e| e.to_string().contains("--lora-slots")));
}

/// Without slots nothing changes, and with them the plan has a version of its own for adapters only.
#[test]
fn targets_are_named() {
    let lift = |targets: &[&str]| {
        let targets = targets.iter().map(|t| t.to_string()).collect();
        llmcc_cli::session::lift(&CompileOptions {
            slots: Some(AdapterSlots { count: 1, rank: 4, wide: None, targets }),
            targets: vec![target::find("x86-64-v3").expect("a target")],
            ..options(&golden("adapters/base"))
        })
    };
    let room = |targets: &[&str]| lift(targets).expect("lifted").adapters.expect("a table");
    assert_eq!(room(&[]).matrices.len(), 14);
    assert_eq!(room(&["q_proj"]).kinds(), ["q_proj"]);
    let some = room(&["layers.1.self_attn.q_proj", "down_proj"]);
    assert_eq!((some.kinds(), some.matrices.len()), (vec!["q_proj", "down_proj"], 3));
    let message = lift(&["q_projection"]).err().expect("refused").to_string();
    assert!(message.contains("no product of the model's layers has a matrix `q_projection`"), "{message}");
    assert!(message.contains("q_proj, k_proj, v_proj"), "{message}");
}
