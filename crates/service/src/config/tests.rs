//! Configurations as users write them, and every mistake they can contain.

use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

const GOOD: &str = r#"
[daemon]
period_s = 0.5
mode = "dry-run"

[policy]
name = "a4"

[policy.settings]
hpw_llc_hit_thr = 0.3

[limits]
dca_ports = ["3a:00.0"]
cpus = "0-17"
classes = 8
outsiders = "correct"

[metrics]
listen = "127.0.0.1:8910"

[[tenant]]
name = "redis"
priority = "high"
cores = "0-3"
"#;

/// Loads a configuration from these files; the first is the main one.
fn load_with(
    files: &[(&str, &str)],
    environment: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("conf.d")).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let flag = |(key, value): &(&str, &str)| Flag {
        flag: format!("--set {key}"),
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    let inputs = Inputs {
        file: Some(folder.path().join(files[0].0)),
        environment: environment.iter().map(own).collect(),
        flags: flags.iter().map(flag).collect(),
    };
    let here = format!("{}/", folder.path().display());
    Config::load(&inputs).map_err(|error| error.to_string().replace(&here, ""))
}

fn load(text: &str) -> Result<Config, String> {
    load_with(&[("w.toml", text)], &[], &[])
}

#[test]
fn a_file_is_read() {
    let config = load(GOOD).unwrap();
    assert_eq!((config.period_ns, config.mode), (500_000_000, DaemonMode::DryRun));
    assert_eq!(config.policy.settings["hpw_llc_hit_thr"].as_float(), Some(0.3));
    assert_eq!(config.limits.dca_ports, Ports::Only(vec!["0000:3a:00.0".parse().unwrap()]));
    assert_eq!((config.limits.classes, config.take_back()), (Some(8), 3));
    assert_eq!(config.metrics, Some("127.0.0.1:8910".parse().unwrap()));
    assert_eq!(config.tenants[0].name, "redis");
    assert_eq!(config.socket_path(), Some("/run/waykeeper/waykeeper.sock".into()));
    assert_eq!(usual_socket(&Root::at("/mnt/v")), Path::new("/run/waykeeper/mnt-v.sock"));
}

#[test]
fn layers_lie_one_over_the_other_and_tenants_add_up() {
    let files = [
        ("w.toml", GOOD),
        ("conf.d/20-b.toml", "daemon.period_s = 3\n[[tenant]]\nname = \"b\"\ncores = \"5\""),
        (
            "conf.d/10-a.toml",
            "[daemon]\nperiod_s = 2\nmode = \"observe\"\n[[tenant]]\nname = \"a\"\ncores = \"4\"",
        ),
        ("conf.d/note.txt", "not a configuration"),
        ("conf.d/.10-a.toml.swp.toml", "not either"),
    ];
    let variables = [
        ("WAYKEEPER_LIMITS_CPUS", "7"),
        ("WAYKEEPER_POLICY_SETTINGS", "{ min_llc_refs = 0.1 }"),
        ("HOME", "/"),
    ];
    let config =
        load_with(&files, &variables, &[("daemon.mode", "manage"), ("policy.settings.revert", "true")])
            .unwrap();
    let names: Vec<&str> = config.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["redis", "a", "b"]);
    assert_eq!((config.period_ns, config.mode), (3_000_000_000, DaemonMode::Manage));
    // A bare number in the environment becomes a string where a string is wanted.
    assert_eq!(config.limits.cpus, Some("7".parse().unwrap()));
    let settings: Vec<&str> = config.policy.settings.keys().map(String::as_str).collect();
    assert_eq!(settings, ["hpw_llc_hit_thr", "min_llc_refs", "revert"]);
    let reported = |path: &str| config.sources.of(path).to_string();
    assert!(reported("daemon.period_s").ends_with("conf.d/20-b.toml:1"), "{}", reported("daemon.period_s"));
    assert_eq!(reported("daemon.mode"), "--set daemon.mode");
    assert_eq!(reported("limits.cpus"), "environment WAYKEEPER_LIMITS_CPUS");
    assert_eq!(reported("daemon.root"), "default");
}

#[test]
fn another_policy_does_not_inherit_settings() {
    let config = load_with(&[("w.toml", GOOD)], &[("WAYKEEPER_POLICY_NAME", "iat")], &[]).unwrap();
    assert_eq!((config.policy.name.as_str(), config.policy.settings.len()), ("iat", 0));
    let same = load_with(&[("w.toml", GOOD)], &[("WAYKEEPER_POLICY_NAME", "a4")], &[]).unwrap();
    assert_eq!(same.policy.settings.len(), 1);
}

#[test]
fn a_key_with_any_characters_is_shown_so_that_it_reads_back() {
    let name = "\u{485}a\nb\0\"\\c";
    let key = format!("policy.settings.{name}");
    let config = load_with(&[("w.toml", GOOD)], &[], &[(&key, "1")]).unwrap();
    let again = load(&show(&config)).unwrap();
    assert_eq!(again.policy.settings[name].as_integer(), Some(1));
    assert_eq!(again.policy.settings, config.policy.settings);
}

#[test]
fn what_is_shown_reads_back_as_the_same() {
    let config = load(GOOD).unwrap();
    let shown = show(&config);
    assert!(shown.contains("period_s = 0.5"), "{shown}");
    let again = load(&shown).unwrap();
    let tenants = differences(&config, &again);
    assert_eq!(tenants.iter().map(|one| one.key).collect::<Vec<_>>(), ["tenant"], "{shown}");
}

#[test]
fn the_model_has_a_share_and_cpus_and_what_cannot_be_is_refused() {
    let config = load("").unwrap().twin;
    assert_eq!((config.enabled, config.share, config.cores), (true, 0.2, None));
    let config = load("[twin]\nenabled = false\nshare = 1\ncores = \"0-1,7\"").unwrap();
    let twin = &config.twin;
    assert_eq!((twin.enabled, twin.share, &twin.cores), (false, 1.0, &"0-1,7".parse().ok()));
    assert!(show(&config).contains("cores = \"0-1,7\""), "{}", show(&config));
    // The thread is started once.
    let other = load("[twin]\nshare = 0.5").unwrap();
    assert!(differences(&config, &other).iter().all(|one| !one.live));
    let refused = |text: &str| load(&format!("[twin]\n{text}")).unwrap_err();
    let wanted = "is not valid; give a number from 0.05 to 1";
    for share in ["0.04", "1.01", "nan", "-1", "\"half\""] {
        assert_eq!(refused(&format!("share = {share}")), format!("w.toml:2: twin.share = {share} {wanted}"));
    }
    for cores in ["\"\"", "\"all\"", "\"3-1\"", "[0, 1]"] {
        let wanted = "is not valid; give `auto`, or CPUs like 0-3,8";
        assert_eq!(refused(&format!("cores = {cores}")), format!("w.toml:2: twin.cores = {cores} {wanted}"));
    }
    assert_eq!(refused("enabled = 1"), "w.toml:2: twin.enabled = 1 is not valid; give true or false");
}

#[test]
fn looks_are_off_and_rare_and_their_keys_are_checked() {
    let config = load("").unwrap();
    assert_eq!(config.worth.allowed(), None);
    // Ten minutes, three steps.
    assert_eq!((config.worth.look_back.every_ns, config.worth.look_back.intervals), (600_000_000_000, 3));
    let config = load("[worth]\nlooks = true\nevery_s = 12.5\nlook_steps = 4\n").unwrap();
    let look_back = config.worth.allowed().unwrap();
    assert_eq!((look_back.every_ns, look_back.intervals), (12_500_000_000, 4));
    let refused = |text: &str| load(&format!("[worth]\n{text}")).unwrap_err();
    assert_eq!(refused("looks = 1"), "w.toml:2: worth.looks = 1 is not valid; give true or false");
    for every_s in ["9.9", "86401", "nan", "\"often\""] {
        let wanted = "is not valid; give seconds from 10 to 86400";
        assert_eq!(
            refused(&format!("every_s = {every_s}")),
            format!("w.toml:2: worth.every_s = {every_s} {wanted}")
        );
    }
    for steps in ["1", "61", "2.5"] {
        let wanted = "is not valid; give a whole number from 2 to 60";
        assert_eq!(
            refused(&format!("look_steps = {steps}")),
            format!("w.toml:2: worth.look_steps = {steps} {wanted}")
        );
    }
}

#[test]
fn a_setting_that_is_not_a_number_is_refused_since_every_reload_would_find_it_changed() {
    let said = load("[policy.settings]\na = nan\n").unwrap_err();
    assert!(said.ends_with("w.toml:2: policy.settings.a = nan is not valid; give a number"), "{said}");
    let said =
        load_with(&[("w.toml", "")], &[("WAYKEEPER_POLICY_SETTINGS", "{ a = [1, { b = nan }] }")], &[])
            .unwrap_err();
    assert!(said.contains("WAYKEEPER_POLICY_SETTINGS: policy.settings.a = "), "{said}");
}

#[test]
fn every_mistake_names_its_place_and_what_would_do() {
    let reported = |from: &str, to: &str| load(&GOOD.replacen(from, to, 1)).unwrap_err();
    assert_eq!(
        reported("period_s = 0.5", "period_s = \"fast\""),
        "w.toml:3: daemon.period_s = \"fast\" is not valid; give seconds from 0.005 to 3600"
    );
    assert_eq!(
        reported("period_s", "perid_s"),
        "w.toml:3: unknown key `daemon.perid_s`; did you mean `daemon.period_s`?"
    );
    assert_eq!(
        reported("[daemon]", "[deamon]"),
        "w.toml:2: unknown section [deamon]; did you mean `daemon`?"
    );
    assert_eq!(
        reported("[daemon]\n", ""),
        "w.toml:2: unknown key `period_s`; did you mean `daemon.period_s`?"
    );
    assert_eq!(
        reported("\"dry-run\"", "\"dry\""),
        "w.toml:4: daemon.mode = \"dry\" is not valid; give manage or dry-run or observe"
    );
    assert_eq!(
        reported("8910", "9100").split("; give").next(),
        Some("w.toml:19: metrics.listen = \"127.0.0.1:9100\" is not valid")
    );
    assert!(
        reported("3a:00.0", "eth0")
            .starts_with("w.toml:13: limits.dca_ports = [\"eth0\"] is not valid; give all, none")
    );
    assert_eq!(
        reported("[[tenant]]", "[tenant]"),
        "w.toml:21: a tenant is written as [[tenant]], with two brackets"
    );
    assert_eq!(
        reported("priority =", "priorty ="),
        "w.toml:23: unknown key `priorty`; did you mean `priority`?"
    );
    assert!(reported("[metrics]", "[metrics").starts_with("w.toml:18: "));
    assert!(
        reported("\"a4\"", "4")
            .starts_with("w.toml:7: policy.name = 4 is not valid; give the name of a policy")
    );
    let twice = [("w.toml", GOOD), ("conf.d/a.toml", "\n[[tenant]]\nname = \"b\"\ncores = \"3\"")];
    assert_eq!(
        load_with(&twice, &[], &[]).unwrap_err(),
        "conf.d/a.toml:2: cores of `b`: core 3 already belongs to `redis`; a core has one tenant"
    );
    let wrong = |name: &str| load_with(&[("w.toml", GOOD)], &[(name, "1")], &[]).unwrap_err();
    assert_eq!(
        wrong("WAYKEEPER_DEAMON_PERIOD_S"),
        "environment WAYKEEPER_DEAMON_PERIOD_S: unknown variable; did you mean `WAYKEEPER_DAEMON_PERIOD_S`?"
    );
    assert!(wrong("WAYKEEPER_LIMITS_X").contains("unknown variable"));
    // Not one of our variables, and not similar to one.
    assert!(load_with(&[("w.toml", GOOD)], &[("WAYKEEPER_FAULTS_ROOT", "1")], &[]).is_ok());
    let flag = load_with(&[("w.toml", GOOD)], &[], &[("daemon.period_s", "0")]).unwrap_err();
    assert_eq!(
        flag,
        "--set daemon.period_s: daemon.period_s = 0 is not valid; give seconds from 0.005 to 3600"
    );
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let reported = |file: PathBuf| {
        let inputs = Inputs { file: Some(file), ..Inputs::default() };
        Config::load(&inputs).unwrap_err().to_string()
    };
    assert!(
        reported(folder.path().join("none.toml"))
            .ends_with("none.toml: No such file or directory (os error 2)")
    );
    let wanted = |kind: &str| format!("is {kind}, not a file; it is left unchanged, use another path");
    assert!(reported(folder.path().to_owned()).ends_with(&wanted("a folder")));
    assert!(reported("/dev/zero".into()).ends_with(&wanted("a pipe or a device")));
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(reported(fifo).ends_with(&wanted("a pipe or a device")));
    let big = folder.path().join("big.toml");
    fs::write(&big, "#".repeat(2 << 20)).unwrap();
    assert!(reported(big).ends_with("a configuration file has at most 1048576 bytes, this file has more"));
}

/// Needs root: it gives files to another user.
#[test]
fn a_configuration_that_another_user_could_have_written_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (main, more) = (folder.path().join("w.toml"), folder.path().join("conf.d"));
    let part = more.join("a.toml");
    fs::create_dir(&more).unwrap();
    fs::write(&main, GOOD).unwrap();
    fs::write(&part, "[recorder]\ndir = \"/tmp/evil\"").unwrap();
    let inputs = Inputs { file: Some(main.clone()), ..Inputs::default() };
    let here = folder.path().display().to_string();
    let reported =
        || Config::load(&inputs).map_or_else(|why| why.to_string().replace(&here, ""), |_| String::new());
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(reported(), "");
    for (path, name, usual) in
        [(&main, "/w.toml", 0o644), (&part, "/conf.d/a.toml", 0o644), (&more, "/conf.d", 0o755)]
    {
        chown(path, Some(1234), None).expect("not run: needs root");
        let wanted = format!(
            "the configuration is not read: {name} belongs to user 1234, not to root (mode {usual:04o}); give it to root \
             (chown root), or use another path"
        );
        assert_eq!(reported(), wanted);
        chown(path, Some(0), None).unwrap();
        mode(path, usual | 0o002);
        let wanted = format!(
            "the configuration is not read: {name} can be written by other users (mode {:04o}); remove that permission \
             (chmod go-w), or use another path",
            usual | 0o002
        );
        assert_eq!(reported(), wanted);
        mode(path, usual);
    }
    // Other users may add files to a folder with the sticky bit, but cannot change the file itself.
    mode(folder.path(), 0o1777);
    assert_eq!(reported(), "");
    mode(folder.path(), 0o777);
    assert!(reported().contains("can be written by other users (mode 0777)"));
}

#[test]
fn a_place_that_another_user_could_change_is_refused_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::write(open.join("profile.toml"), "").unwrap();
    let here = folder.path().display().to_string();
    let reported = |key: &str, value: &str| {
        let own = [("daemon.journal", "j"), ("socket.path", "s"), ("daemon.profile", "off")];
        let own = own
            .map(|(key, name)| (key, if name == "off" { name.to_owned() } else { format!("{here}/{name}") }));
        let flags = own.iter().map(|(key, value)| (*key, value.as_str())).chain([(key, value)]);
        let config = load_with(&[("w.toml", GOOD)], &[], &flags.collect::<Vec<_>>()).unwrap();
        let config = Config { mode: DaemonMode::Manage, ..config };
        config
            .check_places(&RealSystem)
            .map_or_else(|why| why.to_string().replace(&here, ""), |()| String::new())
    };
    let places = [
        ("daemon.profile", "profile.toml"),
        ("daemon.journal", "journal"),
        ("socket.path", "socket"),
        ("metrics.listen", "metrics"),
        ("recorder.dir", "recorder"),
        ("recorder.dir", ""),
    ];
    for mode in [0o755, 0o777] {
        fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
        for (key, name) in places {
            let path = format!("{here}/open/{name}");
            let value = if key == "metrics.listen" { format!("unix:{path}") } else { path };
            let wanted = format!(
                "--set {key}: {key} = \"/open/{name}\" is not used: /open can be written by other users (mode 0777); \
                 remove that permission (chmod go-w), or use another path"
            );
            assert_eq!(reported(key, &value), if mode == 0o755 { "" } else { &wanted });
        }
    }
}

#[test]
fn all_files_together_have_bounds() {
    // The main file and three others of 1 MiB are as long as all files may be.
    let whole = "#".repeat(1 << 20);
    let names = ["w.toml", "conf.d/a.toml", "conf.d/b.toml", "conf.d/c.toml"];
    let mut files: Vec<(&str, &str)> = names.iter().map(|name| (*name, whole.as_str())).collect();
    assert!(load_with(&files, &[], &[]).is_ok());
    files.push(("conf.d/d.toml", "#"));
    let why = "conf.d/d.toml: with this file the configuration has more than 4194304 bytes";
    assert_eq!(load_with(&files, &[], &[]).unwrap_err(), why);
    // 600 globs in each of two files: each is within the bound for one.
    let globs = |name: &str| {
        let tenant =
            |at| format!("[[tenant]]\nname = \"{name}{at}\"\nprocess = [{}]\n", "\"p*\", ".repeat(100));
        (0..6).map(tenant).collect::<String>()
    };
    let [first, second] = ["a", "b"].map(globs);
    assert!(load(&first).is_ok());
    let why = "conf.d/b.toml:13: `b4` is beyond the 1000 globs with a wildcard that may be declared";
    assert_eq!(load_with(&[("w.toml", &first), ("conf.d/b.toml", &second)], &[], &[]).unwrap_err(), why);
}

#[test]
fn a_policys_refusal_is_reported_where_it_happened() {
    let config = load(&GOOD.replacen("hpw_llc_hit_thr = 0.3", "hpw_llc_hit_thr = 3", 1)).unwrap();
    let error = waykeeper_policy::build(&config.policy.name, &config.policy.settings).err().unwrap();
    let reported = config.policy_refused(&error).to_string();
    assert!(reported.contains("w.toml:10: a4: `hpw_llc_hit_thr` = 3 is out of range"), "{reported}");
    let error = waykeeper_policy::build("a44", &config.policy.settings).err().unwrap();
    let reported = config.policy_refused(&error).to_string();
    assert!(reported.contains("w.toml:7: unknown policy `a44`; did you mean `a4`?"), "{reported}");
}

#[test]
fn what_changed_between_two_is_reported() {
    let old = load(GOOD).unwrap();
    let text = GOOD.replacen("0.5", "1", 1).replacen("\"dry-run\"", "\"manage\"", 1).replacen(
        "hpw_llc_hit_thr = 0.3",
        "hpw_llc_hit_thr = 0.4",
        1,
    );
    let new = load(&format!("{text}[[tenant]]\nname = \"b\"\ncores = \"4\"")).unwrap();
    let found = differences(&old, &new);
    let reported: Vec<(&str, bool)> = found.iter().map(|one| (one.text.as_str(), one.live)).collect();
    assert_eq!(
        reported,
        [
            ("daemon.period_s is 1.0, was 0.5", true),
            ("daemon.mode is \"manage\", was \"dry-run\"", false),
            ("settings of the policy changed: hpw_llc_hit_thr", true),
            ("tenants added: b", true),
        ]
    );
    assert!(differences(&old, &old).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_makes_it_panic_and_every_refusal_is_one_line(
        text in "\\PC{0,200}", at in 0usize..400, with in "[\\PC\n]{0,6}", cut in 0usize..400,
    ) {
        let mut texts = vec![text, GOOD[..cut.min(GOOD.len())].to_owned()];
        let mut good = GOOD.to_owned();
        good.insert_str(at.min(good.len()), &with);
        texts.push(good);
        for text in texts {
            let mut config = Config::default();
            let done = files::take_apart(Path::new("w.toml"), &text).and_then(|layer| layers::put(&mut config, layer));
            if let Err(error) = done {
                let reported = error.to_string();
                prop_assert!(reported.starts_with("w.toml:") && !reported.contains('\n'), "{reported}");
            }
        }
    }
}

#[test]
fn the_example_names_every_key_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/waykeeper.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(load(&text).unwrap().tenants.len(), 1);
    // Uncommenting every key changes nothing.
    let is_key = |line: &str| {
        line.strip_prefix('#').is_some_and(|rest| !rest.starts_with([' ', '[']) && !rest.is_empty())
    };
    let said =
        |line: &str| if is_key(line) { line.trim_start_matches('#').to_owned() } else { line.to_owned() };
    let all = load(&text.lines().map(said).collect::<Vec<_>>().join("\n")).unwrap();
    let other = differences(&Config::default(), &all);
    assert_eq!(other.iter().map(|one| one.key).collect::<Vec<_>>(), ["tenant"], "{other:?}");
    for key in KEYS {
        assert_ne!(all.sources.of(key.path), &ValueSource::Default, "{} is not in the example", key.path);
    }
}

/// A key that takes a number refuses what no range contains, and names the unit that was meant.
#[test]
fn every_number_has_a_range() {
    let impossible = [
        toml::Value::Float(1e300),
        toml::Value::Float(-1e300),
        toml::Value::Float(f64::NAN),
        toml::Value::Integer(i64::MAX),
        toml::Value::Integer(i64::MIN),
    ];
    for (key, value) in keys::KEYS.iter().flat_map(|key| impossible.iter().map(move |value| (key, value))) {
        assert!((key.set)(&mut Config::default(), value).is_err(), "{} = {value}", key.path);
    }
    let said = load("[daemon]\nperiod_s = 5000\n").unwrap_err();
    assert!(said.contains("seconds from 0.005 to 3600; 5000 ms are 5 s"), "{said}");
    let said = load("[twin]\nshare = 50\n").unwrap_err();
    assert!(said.contains("a number from 0.05 to 1; 50 % are 0.5"), "{said}");
}
