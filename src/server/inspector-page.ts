/**
 * The inspector, at `/`: a page and the modules it is made of, from the build. Only what the page
 * itself asks for is there to be had: its style, its first module, and what those import.
 */
import { readFileSync } from 'node:fs'
import { posix } from 'node:path'
import { HoldfastError, invalid } from '../core/index.ts'

/** Everything comes from this server, no script is in the page itself, and no site may frame it. */
export const PAGE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data: blob:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ')

const BUILD = new URL('../', import.meta.url)
const STYLE = 'inspector/inspector.css'
const FIRST_MODULE = 'inspector/main.js'

let page = ''
let assets: ReturnType<typeof collectAssets> | null = null

/** The page; the same for every client, with no secret in it. */
export function inspectorPage(): string {
  page ||= readBuilt('inspector/index.html')
  return page
}

/** One of the page's files, by its path in the build. */
export function inspectorAsset(path: string) {
  assets ??= collectAssets()
  const text = assets.get(path)
  if (text === undefined) throw invalid('file', 'is no part of the inspector')
  return { type: `text/${path === STYLE ? 'css' : 'javascript'}; charset=utf-8`, text }
}

function collectAssets() {
  const found = new Map([[STYLE, readBuilt(STYLE)]])
  const wanted = [FIRST_MODULE]
  for (let path = wanted.pop(); path !== undefined; path = wanted.pop()) {
    if (found.has(path)) continue
    const text = readBuilt(path)
    found.set(path, text)
    wanted.push(...importsOf(path, text))
  }
  return found
}

/** Static imports, as the compiler writes them: each on a line of its own, or at the end of one. */
function importsOf(path: string, text: string): readonly string[] {
  const specifiers = text.matchAll(/^(?:import|export|\})[^'"\n]*['"](\.{1,2}\/[^'"]+)['"];?$/gm)
  return Array.from(specifiers, ([, to = '']) => posix.join(posix.dirname(path), to))
}

function readBuilt(path: string): string {
  try {
    return readFileSync(new URL(path, BUILD), 'utf8')
  } catch {
    throw new HoldfastError('route_unknown', 'the inspector is not part of this build')
  }
}

/** A command to paste, to see a turn. */
export function tryLine(url: string, needsToken = false): string {
  const token = needsToken ? ' -H "authorization: Bearer $HOLDFAST_TOKEN"' : ''
  const header = `-H 'content-type: application/json'${token}`
  return `curl -s ${url}/v1/keys/demo/turns ${header} -d '{"input":"hello"}'`
}
