"""The paper's tables and figures: settings, trainings, records and reports."""
