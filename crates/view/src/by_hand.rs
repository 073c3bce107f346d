//! Turning one knob by hand: the policy `fixed` with the knobs in force and one of them changed.
//!
//! So a knob that a person turns takes the same way as one that a policy turns: it is planned, set and read back, its
//! original value is saved, and it returns when another policy takes over or the program ends. Must not know the source.

use crate::source::{Turn, TurnError};
use toml::{Table, Value};
use waykeeper_host::{Device, Inventory, KnobValues, Support, Workload};

/// The policy that holds knobs at given values.
pub(crate) const POLICY: &str = "fixed";

/// The settings of [`POLICY`] that a turn of a knob leads to; `None` if the turn is of no knob.
///
/// # Errors
/// If it names a tenant or device that is not there, or a mask that the LLC does not take.
pub(crate) fn settings(
    turn: &Turn,
    knobs: &KnobValues,
    tenants: &[Workload],
    inventory: &Inventory,
) -> Result<Option<Table>, TurnError> {
    let mut settings = in_force(knobs, tenants, inventory);
    let llc = || {
        let unknown = || TurnError::Unsupported("the ways of this host's LLC are not known".to_owned());
        inventory.llc.ok_or_else(unknown)
    };
    match turn {
        Turn::Mask { tenant, mask } => {
            if !tenants.iter().any(|own| own.name == *tenant) {
                return Err(unknown("tenant", tenant, tenants.iter().map(|own| own.name.as_str())));
            }
            let llc = llc()?;
            let mask =
                mask.check(llc.ways, llc.min_ways).map_err(|why| TurnError::Refused(why.to_string()))?;
            table(&mut settings, "masks").insert(tenant.clone(), Value::String(mask.to_string()));
        }
        Turn::DcaWays { mask } => {
            if inventory.dca_ways_switch != Support::Yes {
                return Err(TurnError::Unsupported("the DCA ways of this host cannot be changed".to_owned()));
            }
            let mask = mask.check(llc()?.ways, 1).map_err(|why| TurnError::Refused(why.to_string()))?;
            settings.insert("dca_ways".to_owned(), Value::String(mask.to_string()));
        }
        Turn::Dca { device, on } => {
            self::device(inventory, device)?;
            table(&mut settings, "dca").insert(device.clone(), Value::Boolean(*on));
        }
        _ => return Ok(None),
    }
    Ok(Some(settings))
}

/// The device of this name.
///
/// # Errors
/// If there is none.
pub(crate) fn device<'a>(inventory: &'a Inventory, name: &str) -> Result<&'a Device, TurnError> {
    let known = || inventory.devices.iter().map(|own| own.name.as_str());
    let found = inventory.devices.iter().find(|own| own.name == name);
    found.ok_or_else(|| unknown("device", name, known()))
}

/// The knobs in force that `fixed` can hold.
fn in_force(knobs: &KnobValues, tenants: &[Workload], inventory: &Inventory) -> Table {
    let mut settings = Table::new();
    let masks = tenants
        .iter()
        .filter_map(|tenant| Some((tenant.name.clone(), Value::String(knobs.mask(tenant.id)?.to_string()))));
    settings.insert("masks".to_owned(), Value::Table(masks.collect()));
    if let Some(ways) = knobs.dca_ways().filter(|_| inventory.dca_ways_switch == Support::Yes) {
        settings.insert("dca_ways".to_owned(), Value::String(ways.to_string()));
    }
    let can_switch = |id: &waykeeper_units::PortId| {
        inventory.ports.get(id.index()).is_some_and(|port| port.dca_switch == Support::Yes)
    };
    let dca = inventory.devices.iter().filter_map(|device| {
        let first = device.ports.first()?;
        let all = device.ports.iter().all(|port| can_switch(port) && knobs.dca(*port) == knobs.dca(*first));
        let on = knobs.dca(*first).filter(|_| all)?;
        Some((device.name.clone(), Value::Boolean(on)))
    });
    let dca: Table = dca.collect();
    if !dca.is_empty() {
        settings.insert("dca".to_owned(), Value::Table(dca));
    }
    settings
}

fn table<'a>(settings: &'a mut Table, key: &str) -> &'a mut Table {
    let entry = settings.entry(key.to_owned()).or_insert_with(|| Value::Table(Table::new()));
    entry.as_table_mut().expect("this file puts only tables there")
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> TurnError {
    let known: Vec<&str> = known.collect();
    let known =
        if known.is_empty() { "there is none".to_owned() } else { format!("known are {}", known.join(", ")) };
    TurnError::Refused(format!("unknown {what} `{}`; {known}", waykeeper_units::shown(name)))
}
