//! Prints all that the crate resctrlfs reads below a folder: `resctrlfs FOLDER yes|no`, with or without its check of the file
//! system's type.

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let sample = resctrlfs::ResctrlReader::new(arguments[1].clone().into(), arguments[2] == "yes")
        .and_then(|reader| reader.read_all());
    match sample {
        Ok(sample) => println!("{sample:?}"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}
