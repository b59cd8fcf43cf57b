/**
 * The inspector, at `/`: a page, its script and its style, from the build. Nothing else of the
 * build is there to be had.
 */
import { readFileSync } from 'node:fs'
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

const BUILD = new URL('../inspector/', import.meta.url)

/** What the page loads, by its path below `assets`. */
const ASSETS: Readonly<Record<string, { readonly file: string; readonly type: string }>> = {
  'inspector/main.js': { file: 'main.js', type: 'text/javascript; charset=utf-8' },
  'inspector/inspector.css': { file: 'inspector.css', type: 'text/css; charset=utf-8' },
}

const read = new Map<string, string>()

/** The page; the same for every client, with no secret in it. */
export const inspectorPage = (): string => readBuilt('index.html')

/** One of the page's files, by its path below `assets`. */
export function inspectorAsset(path: string) {
  const asset = Object.hasOwn(ASSETS, path) ? ASSETS[path] : undefined
  if (asset === undefined) throw invalid('file', 'is no part of the inspector')
  return { type: asset.type, text: readBuilt(asset.file) }
}

/** Each file is read once. */
function readBuilt(file: string): string {
  const known = read.get(file)
  if (known !== undefined) return known
  try {
    const text = readFileSync(new URL(file, BUILD), 'utf8')
    read.set(file, text)
    return text
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
