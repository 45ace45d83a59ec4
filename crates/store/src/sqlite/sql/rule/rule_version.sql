-- Rises with every change of the rules.
SELECT version FROM rule_version
