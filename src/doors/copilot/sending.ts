/** A message of a client as the input of a turn. */
import { invalid, type GivenPart } from '../../core/index.ts'
import { oneOf } from '../../schema/contract.ts'
import { Type, type Static } from '../../schema/typebox.ts'
import { decodeBase64 } from '../parts.ts'
import type { Sent } from './attached-session.ts'

const Blob = Type.Object({
  type: Type.String(),
  mimeType: Type.Optional(Type.String()),
  data: Type.Optional(Type.String()),
  displayName: Type.Optional(Type.String()),
})

export const SendParams = Type.Object({
  sessionId: Type.String({ minLength: 1 }),
  prompt: Type.String({ description: 'the text of the message' }),
  attachments: Type.Optional(
    Type.Array(Blob, {
      maxItems: 32,
      description: 'images and files with their bytes (`blob`); the server reads no paths',
    }),
  ),
  mode: Type.Optional(
    oneOf(['enqueue', 'immediate'], {
      description: '`immediate` gives the message to the running turn, if the agent takes it',
    }),
  ),
  agentMode: Type.Optional(
    Type.String({ minLength: 1, description: 'the setting `mode`, for this turn' }),
  ),
})

/** Fields that would change what the agent does, and cannot be honoured. */
const REFUSED = ['requiredTool', 'responseFormat', 'prepend', 'requestHeaders'] as const

export function readInput(params: Static<typeof SendParams>): Sent {
  const { prompt, attachments = [], mode, agentMode } = params
  for (const field of REFUSED) {
    const value = (params as Readonly<Record<string, unknown>>)[field]
    const isSet = value !== undefined && value !== null && value !== false
    if (isSet) throw invalid(field, 'cannot be honoured')
  }
  const parts = attachments.map(readAttachment)
  const text: GivenPart = { type: 'text', text: prompt }
  return {
    input: parts.length === 0 ? prompt : { parts: [...(prompt === '' ? [] : [text]), ...parts] },
    busy: mode === 'immediate' ? 'steer' : 'queue',
    ...(agentMode === undefined || agentMode === 'interactive'
      ? {}
      : { settings: { mode: agentMode } }),
  }
}

function readAttachment(
  { type, mimeType, data, displayName = 'file' }: Static<typeof Blob>,
  index: number,
): GivenPart {
  const field = `attachments.${index}`
  if (type !== 'blob' || mimeType === undefined) {
    throw invalid(field, 'must be a blob: the server does not read files of its clients')
  }
  const bytes = { mediaType: mimeType, data: decodeBase64(data, `${field}.data`) }
  return mimeType.startsWith('image/')
    ? { type: 'image', ...bytes }
    : { type: 'file', name: displayName, ...bytes }
}
