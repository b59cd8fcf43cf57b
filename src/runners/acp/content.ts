/** The input of a turn as content of a prompt. */
import type { RunnerPart, RunnerTurn } from '../../core/index.ts'
import { asObject, type JsonObject } from '../json.ts'
import { base64, partsOf, refusePart } from '../parts.ts'

/** Throws for a part that the agent did not say it takes (`promptCapabilities`). */
export function promptOf(turn: RunnerTurn, capabilities: unknown): readonly object[] {
  const takes = asObject(capabilities)
  return partsOf(turn).map((part) => blockOf(part, takes))
}

function blockOf(part: RunnerPart, takes: JsonObject): object {
  if (part.type === 'text') return { type: 'text', text: part.text }
  const { mediaType: mimeType, data } = part
  if (part.type === 'image') {
    if (takes['image'] !== true) throw refusePart('image')
    return { type: 'image', mimeType, data: base64(data) }
  }
  if (takes['embeddedContext'] !== true) throw refusePart('file')
  const uri = `file:///${encodeURIComponent(part.name)}`
  return { type: 'resource', resource: { uri, mimeType, ...contentOf(mimeType, data) } }
}

function contentOf(mimeType: string, data: Uint8Array): object {
  const isText = /^text\/|[/+](json|xml|yaml)$/.test(mimeType)
  return isText ? { text: new TextDecoder().decode(data) } : { blob: base64(data) }
}
