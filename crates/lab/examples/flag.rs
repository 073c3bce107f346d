use std::sync::Arc;
use waykeeper_control::*;
use waykeeper_host::*;
use waykeeper_machine::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let get =
        |k: &str, d: &str| args.iter().position(|a| a == k).map(|i| args[i + 1].clone()).unwrap_or(d.into());
    let sampling = get("--sets", "1/32").parse().unwrap();
    let seed: u64 = get("--seed", "1").parse().unwrap();
    let mut src = ScenarioSource::open(args[1].as_ref()).unwrap();
    for (i, a) in args.iter().enumerate() {
        if a == "--set" {
            let (k, v) = args[i + 1].split_once('=').unwrap();
            let t: toml::Table = format!("v = {v}").parse().unwrap();
            src.set(k, &t["v"]).unwrap();
        }
    }
    let sc = Arc::new(src.read().unwrap_or_else(|e| panic!("{e}")));
    let pol = get("--policy", "default,isolate,a4-a,a4-b,a4-c,a4-d");
    let mut base: Vec<f64> = vec![];
    let quiet = args.iter().any(|a| a == "-q");
    for p in pol.split(',') {
        let mut m = VirtualServer::new(sc.clone(), RunOptions { seed, sample_seed: seed, sampling }).unwrap();
        let fam = if p.starts_with("a4") { "a4" } else { p };
        let settings = sc.policy_settings.get(fam).and_then(|v| v.as_table()).cloned().unwrap_or_default();
        let mut policy = waykeeper_policy::build(p, &settings).unwrap();
        let cfg = ControlConfig {
            period_ns: (sc.interval_s * 1e9) as u64,
            duration_ns: Some(((sc.duration_s - sc.measure_s) * 1e9) as u64),
        };
        let mut obs = |r: &Record, _: Option<&Interval>| {
            if !quiet {
                for e in &r.events {
                    println!("  {:>4.0}s {:12} {}", r.at_ns as f64 / 1e9, r.state, e.text);
                }
                for pr in &r.problems {
                    println!("  PROBLEM {pr:?}");
                }
            }
            std::ops::ControlFlow::Continue(())
        };
        let mut m = VirtualServer::new(sc.clone(), RunOptions { seed, sample_seed: seed, sampling }).unwrap();
        let mut policy = waykeeper_policy::build(p, &settings).unwrap();
        println!("== {p}");
        // run to the end with measurement at last part
        struct O<'a> {
            f: &'a mut dyn FnMut(&Record, Option<&Interval>) -> std::ops::ControlFlow<()>,
        }
        impl Observer for O<'_> {
            fn observe(&mut self, r: &Record, i: Option<&Interval>) -> std::ops::ControlFlow<()> {
                (self.f)(r, i)
            }
        }
        run(&mut m, policy.as_mut(), cfg, &mut O { f: &mut obs }).unwrap();
        m.begin_stretch();
        m.wait_until((sc.duration_s * 1e9) as u64).unwrap();
        let r = m.measured();
        let mut hp = vec![];
        let mut lpv = vec![];
        for (i, (w, s)) in r.workloads.iter().zip(&sc.workloads).enumerate() {
            let score = match s.program.score {
                Score::InverseLatency => 1e6 / w.latency_mean_ns.unwrap_or(1.0),
                Score::Ipc => w.ipc.unwrap_or(0.),
            };
            if base.len() <= i {
                base.push(score);
            }
            let rel = score / base[i];
            if s.priority == Priority::High {
                hp.push((rel, s.cores.len()))
            } else {
                lpv.push((rel, s.cores.len()))
            }
            println!(
                "   {:14} {:4} rel {:5.2} hit {:5.1} mlchit {:5.1} lat {:8.1} ipc {:4.2} {:7.2} M/s",
                s.name,
                if s.priority == Priority::High { "HPW" } else { "lpw" },
                rel,
                100. * w.llc_hit_ratio.unwrap_or(0.),
                100. * w.mlc_hit_ratio.unwrap_or(0.),
                w.latency_mean_ns.unwrap_or(0.) / 1e3,
                w.ipc.unwrap_or(0.),
                w.operations_per_s / 1e6
            );
        }
        let mean = |v: &[(f64, usize)]| {
            v.iter().map(|(r, c)| r * *c as f64).sum::<f64>() / v.iter().map(|(_, c)| *c as f64).sum::<f64>()
        };
        let s = &r.system;
        println!(
            "   HPW {:.3} LPW {:.3}  rd {:.1} wr {:.1} wrhit {:.1} leak {:.2}GB/s drops {:.2}M dir {:.1}M",
            mean(&hp),
            mean(&lpv),
            s.memory_read_bytes_per_s / 1e9,
            s.memory_write_bytes_per_s / 1e9,
            100. * s.dca_write_hit_ratio.unwrap_or(0.),
            s.dma_leak_lines_per_s * 64e-9,
            s.drops_per_s / 1e6,
            s.directory_evictions_per_s / 1e6
        );
    }
}
