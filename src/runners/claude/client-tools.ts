/**
 * The tools of a session's clients, for Claude Code: a server of the Model Context Protocol (MCP)
 * in this process, whose messages come over the control protocol. Nothing is started and no port
 * is opened for it. What a tool is called with goes to a client as an ask.
 */
import type { AskOutcome, ClientTool, RunnerContext } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { unansweredWords } from '../asking.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'

/** The name of the server, and so the beginning of each tool's name. */
export const CLIENT_SERVER = 'client'
const PREFIX = `mcp__${CLIENT_SERVER}__`
const METHOD_UNKNOWN = -32_601

/** What a tool has said, as MCP has it. */
export type ToolResult = { readonly content: readonly JsonObject[]; readonly isError?: boolean }

export type CallTool = (name: string, input: JsonObject) => Promise<ToolResult>

/** The answer of the server; that to a notification is not looked at. */
export async function serverAnswer(
  { id = 0, method, params }: JsonObject,
  tools: readonly ClientTool[],
  call: CallTool,
): Promise<JsonObject> {
  const { name, arguments: input, protocolVersion } = asObject(params)
  const answer = { jsonrpc: '2.0', id }
  switch (method) {
    case 'initialize': {
      const serverInfo = { name: CLIENT_SERVER, version: '1' }
      return { ...answer, result: { protocolVersion, capabilities: { tools: {} }, serverInfo } }
    }
    case 'tools/list':
      return { ...answer, result: { tools: tools.map(listed) } }
    case 'tools/call':
      return { ...answer, result: await call(asText(name), asObject(input)) }
    case 'ping':
    case 'notifications/initialized':
    case 'notifications/cancelled':
      return { ...answer, result: {} }
    default:
      return { ...answer, error: { code: METHOD_UNKNOWN, message: 'there is no such method' } }
  }
}

function listed({ name, description, parameters }: ClientTool): JsonObject {
  return { name, description, inputSchema: { ...parameters, type: 'object' } }
}

/** Whether a tool of clients is about to be called, before which no person is to be asked. */
export function isFree(tool: string, tools: readonly ClientTool[]): boolean {
  return tools.some(({ name, skipPermission }) => skipPermission && PREFIX + name === tool)
}

export function failed(words: string): ToolResult {
  return { content: [{ type: 'text', text: words }], isError: true }
}

/** What a client has answered: `{ result }`, as the Copilot SDK has results, or `{ error }`. */
export function toolResult(outcome: AskOutcome, context: RunnerContext): ToolResult {
  if (outcome.outcome !== 'answered') {
    return failed(unansweredWords(outcome, context) ?? 'The call was withdrawn.')
  }
  const { answer } = outcome
  if (!isRecord(answer)) return said(answer)
  const { error, result = answer } = answer
  if (error !== undefined) return failed(textOf(error))
  if (!isRecord(result) || result['textResultForLlm'] === undefined) return said(result)
  const { textResultForLlm: text, resultType = 'success', binaryResultsForLlm: bytes } = result
  const content = [{ type: 'text', text: textOf(text) }, ...asList(bytes).flatMap(imageOf)]
  return { content, isError: resultType !== 'success' }
}

function said(result: unknown): ToolResult {
  return { content: [{ type: 'text', text: textOf(result) }] }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value ?? '')
}

function imageOf(value: unknown): readonly JsonObject[] {
  const { type, data, mimeType } = asObject(value)
  return type === 'image' ? [{ type, data: asText(data), mimeType: asText(mimeType) }] : []
}
