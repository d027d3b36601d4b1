//! Prints what `lift` makes of a checkpoint.
use llmcc_frontends::{Checkpoint, Options, arch, lift, tokenizer, unused_tensors};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let ckpt = Checkpoint::open(path.as_ref())?;
        let m = lift(&ckpt, &Options::default())?;
        println!("{path}: {} {:?} funcs {:?}", m.name, m.info, m.funcs.iter().map(|f| (&f.name, f.nodes.len())).collect::<Vec<_>>());
        println!("unused {:?}", unused_tensors(&ckpt, &m));
        let t = tokenizer::text_assets(&ckpt, &arch::config(&ckpt)?)?;
        println!("{:?} {}", t.tokenizer_json.map(|t| t.len()), t.text_config);
    }
    Ok(())
}
