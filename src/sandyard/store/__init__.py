"""The state database: tables, migrations, queries; and nothing of what they mean."""
