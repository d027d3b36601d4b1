//! Text from a model: `generate MODEL.so PROMPT`, or `generate MODEL.so --chat MESSAGE` for an answer.

use llmcc_model::{Message, Model, Options, Params};
use std::error::Error;
use std::io::Write;

fn main() {
    let args: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    if let Err(e) = run(&args, &mut std::io::stdout()) {
        eprintln!("error: {e}");
        std::process::exit(1);
    }
}

/// Writes the model's text for the arguments of the command line to `out`.
pub fn run(args: &[String], out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let (path, text, chat) = match args {
        [path, text] => (path, text, false),
        [path, chat, text] if chat == "--chat" => (path, text, true),
        _ => return Err("usage: generate MODEL.so PROMPT, or generate MODEL.so --chat MESSAGE".into()),
    };
    // SAFETY: whoever starts this program trusts the model, which is a program.
    let model = unsafe { Model::open(path, &Options::default()) }?;
    let prompt = match chat {
        true => model.tokenize_plain(&model.chat_prompt(&[Message { role: "user", content: text }])?)?,
        false => model.tokenize(text)?,
    };
    for piece in model.generate(&prompt, &Params { max_tokens: 60, ..Params::default() })? {
        write!(out, "{}", piece?.text)?;
        out.flush()?;
    }
    writeln!(out)?;
    Ok(())
}
