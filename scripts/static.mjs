/** The part of the build that is not TypeScript: the inspector's page and style, as they stand. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'

const FILES = ['inspector/index.html', 'inspector/inspector.css']

/** Written anew, not copied: a build is told to be fresh by the time of its files. */
export function copyStatic() {
  for (const file of FILES) {
    const target = fileURLToPath(new URL(`../dist/${file}`, import.meta.url))
    mkdirSync(dirname(target), { recursive: true })
    writeFileSync(target, readFileSync(new URL(`../src/${file}`, import.meta.url)))
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) copyStatic()
