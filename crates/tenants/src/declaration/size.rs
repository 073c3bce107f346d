//! The bounds of a declaration, also of one in several files. Must not read text.

use super::TenantSpec;
use crate::glob::CgroupSelector;

/// Most tenants of a declaration. Assumption: a family (`each`) declares more than a host has classes and monitors.
const TENANTS_MOST: usize = 1000;

/// Most globs with a wildcard of a declaration: compiled, one with a thousand `?` takes 150 KiB.
const GLOBS_MOST: usize = 1000;

/// Counts of a declaration that have bounds, also for lists from several files.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeclaredSize {
    tenants: usize,
    globs: usize,
}

impl DeclaredSize {
    /// Counts a tenant.
    ///
    /// # Errors
    /// The bound that it is beyond.
    pub fn add(&mut self, spec: &TenantSpec) -> Result<(), String> {
        let globs = spec.selectors.iter().map(CgroupSelector::glob).chain(&spec.programs);
        self.tenants += 1;
        self.globs += globs.filter(|glob| glob.is_wild()).count()
            + spec.devices.iter().filter(|device| device.is_wild()).count();
        for (count, most, what) in
            [(self.tenants, TENANTS_MOST, "tenants"), (self.globs, GLOBS_MOST, "globs with a wildcard")]
        {
            if count > most {
                return Err(format!("`{}` is beyond the {most} {what} that may be declared", spec.name));
            }
        }
        Ok(())
    }
}
