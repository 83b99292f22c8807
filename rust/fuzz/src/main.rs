//! Fuzzing on stable Rust: the model loader, the C interface, fits of arbitrary small problems.
//!
//! `sparsebayes-fuzz TARGET [--seconds S] [--cases N] [--seed S] [--first N] [--name ENDING] [--keep FOLDER]`, the target being `loader`, `c`,
//! `fits` or `all`. A case depends on the seed and its number alone: `--first N --cases 1` runs one again, and `--keep` writes
//! those that fail into a folder, from where they go to `corpus/TARGET`, which every run and the tests begin with. `--name`
//! keeps and says which were the first to end in some way, as with "stalled" or "outputs: stalled".
//!
//! A defect is a panic, an abort, a case of more than fifteen seconds, memory out of proportion to a file, a model that is not
//! the one of its file, or a fit that ends with an attribute that is not finite.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, whose counts are read

mod blocks;
mod bytes;
mod fits;
mod harness;
mod interface;
mod json;
mod judge;
mod loader;
mod machines;
mod make;
mod memory;
mod numbers;
mod parts;
mod problem;
mod random;
mod seeds;
mod watch;

// The C interface is a library for C alone, so its sources are compiled once more, as part of this program.
#[path = "../../c/src/borrow.rs"]
#[allow(unreachable_pub, dead_code)]
mod borrow;
#[path = "../../c/src/model.rs"]
#[allow(unreachable_pub, dead_code, clippy::missing_safety_doc)]
mod model;
#[path = "../../c/src/predict.rs"]
#[allow(unreachable_pub, dead_code, clippy::missing_safety_doc)]
mod predict;
#[path = "../../c/src/status.rs"]
#[allow(unreachable_pub, dead_code)]
mod status;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use harness::{Plan, Report, Target, note_panics, replay, run};

const NAMES: [&str; 3] = ["loader", "c", "fits"];

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name)
}

#[derive(Debug)]
struct Arguments {
    targets: Vec<String>,
    plan: Plan,
    keep: Option<PathBuf>,
}

fn parse(mut given: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let target = given
        .next()
        .ok_or("name a target: loader, c, fits or all")?;
    let targets: Vec<String> = match target.as_str() {
        "all" => NAMES.map(str::to_owned).to_vec(),
        name if NAMES.contains(&name) => vec![target],
        other => {
            return Err(format!(
                "no target {other:?}; there are loader, c, fits and all"
            ));
        }
    };
    let mut plan = Plan {
        seed: 0,
        first: 0,
        cases: u64::MAX,
        seconds: 20.0,
        name: None,
    };
    let mut keep = None;
    while let Some(name) = given.next() {
        let value = given
            .next()
            .ok_or_else(|| format!("{name} needs a value"))?;
        let wrong = || format!("{name} cannot be {value:?}");
        match name.as_str() {
            "--seconds" => plan.seconds = value.parse().map_err(|_| wrong())?,
            "--cases" => plan.cases = value.parse().map_err(|_| wrong())?,
            "--seed" => plan.seed = value.parse().map_err(|_| wrong())?,
            "--first" => plan.first = value.parse().map_err(|_| wrong())?,
            "--name" => plan.name = Some(value),
            "--keep" => keep = Some(PathBuf::from(value)),
            _ => return Err(format!("no option {name}")),
        }
    }
    Ok(Arguments {
        targets,
        plan,
        keep,
    })
}

fn print(name: &str, plan: &Plan, report: &Report) {
    let mut endings: BTreeMap<&str, u64> = BTreeMap::new();
    let mut sorts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (&(sort, ending), count) in &report.endings {
        *endings.entry(ending).or_default() += count;
        let line = sorts.entry(sort).or_default();
        line.push(format!("{ending} {count}"));
    }
    let endings: Vec<String> = endings
        .iter()
        .map(|(ending, count)| format!("{ending} {count}"))
        .collect();
    let (seconds, case) = report.slowest;
    println!(
        "{name}: {} cases from seed {}, {} failures; slowest {seconds:.2} s (case {case}); {}",
        report.cases,
        plan.seed,
        report.failures.len(),
        endings.join(", ")
    );
    if sorts.len() > 1 {
        for (sort, endings) in &sorts {
            println!("{name}: {sort}: {}", endings.join(", "));
        }
    }
    if let Some(ending) = &plan.name {
        println!("{name}: {ending}: cases {:?}", report.named);
    }
    for (case, what) in &report.failures {
        println!("{name}: case {case} of seed {}: {what}", plan.seed);
    }
}

/// Whether all cases of the corpus and of the plan are well.
fn fuzz<T: Target + Clone + Send + 'static>(
    name: &str,
    target: &T,
    arguments: &Arguments,
) -> std::io::Result<bool> {
    // Who asks for some case again asks for that alone.
    let (known, broken) = if arguments.plan.first > 0 {
        (0, Vec::new())
    } else {
        replay(target, &corpus(name))?
    };
    println!(
        "{name}: {known} cases of the corpus, {} failures",
        broken.len()
    );
    for what in &broken {
        println!("{name}: {what}");
    }
    let report = run(target.clone(), &arguments.plan);
    print(name, &arguments.plan, &report);
    if let Some(folder) = &arguments.keep {
        std::fs::create_dir_all(folder)?;
        let failed = report.failures.iter().map(|(case, _)| case);
        for case in failed.chain(&report.named) {
            let input = target.make(&mut random::Random::of_case(arguments.plan.seed, *case));
            let file = format!("{name}-{}-{case}", arguments.plan.seed);
            std::fs::write(folder.join(file), target.to_bytes(&input))?;
        }
    }
    Ok(broken.is_empty() && report.failures.is_empty())
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("{what}");
            return ExitCode::from(2);
        }
    };
    note_panics();
    let mut well = true;
    for name in &arguments.targets {
        let result = match name.as_str() {
            "loader" => fuzz(name, &loader::Loader::new(), &arguments),
            "c" => fuzz(name, &interface::Interface::new(), &arguments),
            _ => fuzz(name, &fits::Fits, &arguments),
        };
        match result {
            Ok(good) => well &= good,
            Err(error) => {
                eprintln!("{name}: {error}");
                well = false;
            }
        }
    }
    if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds<T: Target + Clone + Send + 'static>(name: &str, target: &T, cases: u64) {
        let (_, broken) = replay(target, &corpus(name)).unwrap();
        assert!(broken.is_empty(), "{broken:#?}");
        let plan = Plan {
            seed: 1,
            first: 0,
            cases,
            seconds: 600.0,
            name: None,
        };
        let report = run(target.clone(), &plan);
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        assert_eq!(report.cases, cases);
        assert!(report.endings.len() > 1, "{:?}", report.endings);
    }

    #[test]
    fn the_loader_stands_a_few_thousand_inputs() {
        holds("loader", &loader::Loader::new(), 20_000);
    }

    #[test]
    fn the_c_interface_stands_a_few_thousand_inputs() {
        holds("c", &interface::Interface::new(), 10_000);
    }

    // Builds that check assert of every step what rounding breaks here.
    #[test]
    #[cfg_attr(debug_assertions, ignore = "run with --profile fuzz")]
    fn fits_stand_a_few_thousand_problems() {
        holds("fits", &fits::Fits, 3_000);
    }

    /// Rounding takes the definiteness of the posterior precision on the way; that was an error once.
    #[test]
    #[cfg_attr(debug_assertions, ignore = "run with --profile fuzz")]
    fn the_last_sound_model_stands() {
        for case in ["12-32486", "12-88197", "12-107563", "4-134635", "4-319287"] {
            let name = format!("fits-{case}");
            let bytes = std::fs::read(corpus("fits").join(&name)).unwrap();
            let problem = fits::Fits.read(&bytes).unwrap();
            assert_eq!(fits::Fits.run(&problem), Ok("stalled"), "{name}");
        }
    }

    #[test]
    fn cases_come_back() {
        let mut one = random::Random::of_case(3, 7);
        let mut two = random::Random::of_case(3, 7);
        let target = fits::Fits;
        let (a, b) = (target.make(&mut one), target.make(&mut two));
        assert_eq!(target.to_bytes(&a), target.to_bytes(&b));
        let again = target.read(&target.to_bytes(&a)).unwrap();
        assert_eq!(target.to_bytes(&again), target.to_bytes(&a));
    }
}
