//! What the front can be asked for.

/// One operation; names its metrics and its `operationId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "ROWS says what each is")]
pub enum Operation {
    GetRecord,
    PutRecord,
    PatchRecord,
    DeleteRecord,
    FindRecords,
    GetRecords,
    RecordChanges,
    Schemas,
    GetSchema,
    PutSchema,
    DeleteSchema,
    SweepRecords,
    ClassicPing,
    ClassicPutSchema,
    ClassicDeleteSchema,
    ClassicGet,
    ClassicPut,
    ClassicSelect,
    ClassicUpdate,
    ClassicInsert,
    ClassicInsertAll,
    ClassicDelete,
    ClassicClear,
    ClassicPutScript,
    ClassicDeleteScript,
    RegistryRoot,
    SchemaTypes,
    SchemaById,
    SchemaTextById,
    SchemaVersionsById,
    SchemaSubjectsById,
    Subjects,
    LookUpSubject,
    DeleteSubject,
    SubjectVersions,
    RegisterVersion,
    GetVersion,
    DeleteVersion,
    VersionText,
    VersionReferencedBy,
    GetConfig,
    PutConfig,
    DeleteConfig,
    GetMode,
    PutMode,
    DeleteMode,
    CheckCompatibility,
}

/// Whose URLs, and so whose errors, an operation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `/records/…` and `/schemas/…`.
    Native,
    /// Those of the server before this one.
    Classic,
    /// The Confluent Schema Registry's.
    Registry,
}

use Family::{Classic, Native, Registry};

/// An operation, its name and its family.
type Row = (Operation, &'static str, Family);

const ROWS: [Row; Operation::COUNT] = {
    use Operation::*;
    [
        (GetRecord, "record", Native),
        (PutRecord, "put_record", Native),
        (PatchRecord, "patch_record", Native),
        (DeleteRecord, "delete_record", Native),
        (FindRecords, "find_records", Native),
        (GetRecords, "get_records", Native),
        (RecordChanges, "record_changes", Native),
        (Schemas, "schemas", Native),
        (GetSchema, "schema", Native),
        (PutSchema, "put_schema", Native),
        (DeleteSchema, "delete_schema", Native),
        (SweepRecords, "sweep_records", Native),
        (ClassicPing, "classic_ping", Classic),
        (ClassicPutSchema, "classic_put_schema", Classic),
        (ClassicDeleteSchema, "classic_delete_schema", Classic),
        (ClassicGet, "classic_get", Classic),
        (ClassicPut, "classic_put", Classic),
        (ClassicSelect, "classic_select", Classic),
        (ClassicUpdate, "classic_update", Classic),
        (ClassicInsert, "classic_insert", Classic),
        (ClassicInsertAll, "classic_insert_all", Classic),
        (ClassicDelete, "classic_delete", Classic),
        (ClassicClear, "classic_clear", Classic),
        (ClassicPutScript, "classic_put_script", Classic),
        (ClassicDeleteScript, "classic_delete_script", Classic),
        (RegistryRoot, "registry_root", Registry),
        (SchemaTypes, "schema_types", Registry),
        (SchemaById, "schema_by_id", Registry),
        (SchemaTextById, "schema_text_by_id", Registry),
        (SchemaVersionsById, "schema_versions_by_id", Registry),
        (SchemaSubjectsById, "schema_subjects_by_id", Registry),
        (Subjects, "subjects", Registry),
        (LookUpSubject, "look_up_subject", Registry),
        (DeleteSubject, "delete_subject", Registry),
        (SubjectVersions, "subject_versions", Registry),
        (RegisterVersion, "register_version", Registry),
        (GetVersion, "version", Registry),
        (DeleteVersion, "delete_version", Registry),
        (VersionText, "version_text", Registry),
        (VersionReferencedBy, "version_referenced_by", Registry),
        (GetConfig, "config", Registry),
        (PutConfig, "put_config", Registry),
        (DeleteConfig, "delete_config", Registry),
        (GetMode, "mode", Registry),
        (PutMode, "put_mode", Registry),
        (DeleteMode, "delete_mode", Registry),
        (CheckCompatibility, "check_compatibility", Registry),
    ]
};

impl Operation {
    /// How many there are.
    pub const COUNT: usize = Operation::CheckCompatibility as usize + 1;

    /// Every operation, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Operation> {
        ROWS.iter().map(|row| row.0)
    }

    /// The name in metrics and in `operationId`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        ROWS[self as usize].1
    }

    /// Whose URLs it has.
    #[must_use]
    pub fn family(self) -> Family {
        ROWS[self as usize].2
    }

    /// Whether it reads one record: the operations that are worth a shorter way.
    #[must_use]
    pub fn is_read(self) -> bool {
        matches!(self, Operation::GetRecord | Operation::ClassicGet)
    }

    /// Whether it changes one record: worth the same.
    #[must_use]
    pub fn is_write(self) -> bool {
        use Operation::{ClassicClear, ClassicDelete, ClassicInsert, ClassicInsertAll, ClassicPut, ClassicUpdate};
        use Operation::{DeleteRecord, PatchRecord, PutRecord};
        let is_classic = matches!(
            self,
            ClassicPut | ClassicUpdate | ClassicInsert | ClassicInsertAll | ClassicDelete | ClassicClear
        );
        is_classic || matches!(self, PutRecord | PatchRecord | DeleteRecord)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_rows_are_in_the_order_of_the_variants_and_have_names_of_their_own() {
        for (index, operation) in Operation::all().enumerate() {
            assert_eq!(operation as usize, index, "{}", operation.as_str());
        }
        let names: HashSet<_> = Operation::all().map(Operation::as_str).collect();
        assert_eq!(names.len(), Operation::COUNT);
    }
}
