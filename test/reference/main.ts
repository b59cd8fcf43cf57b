/** `npm run reference`: brings the tables of the reference and the JSON Schema up to date. */
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { CONFIG_SCHEMA_FILE, configSchema, PAGES, withTables } from './pages.ts'

for (const page of PAGES) writeFileSync(page, withTables(readFileSync(page, 'utf8')))
writeFileSync(CONFIG_SCHEMA_FILE, configSchema())
const written = [...PAGES, CONFIG_SCHEMA_FILE]
execFileSync(process.execPath, ['node_modules/oxfmt/bin/oxfmt', ...written], { stdio: 'inherit' })
