import { describe, expect, it } from 'vitest'
import { ClaudeCheck, type ClaudeLine } from './file-checks.ts'

const prompt = (uuid: string, parentUuid: string | null): ClaudeLine => ({
  uuid,
  parentUuid,
  type: 'user',
  message: { content: `prompt ${uuid}` },
})
const answer = (uuid: string, parentUuid: string): ClaudeLine => ({
  uuid,
  parentUuid,
  type: 'assistant',
  message: { content: [{ type: 'text', text: `answer ${uuid}` }] },
})
const toolUse = (uuid: string, parentUuid: string): ClaudeLine => ({
  uuid,
  parentUuid,
  type: 'assistant',
  message: { content: [{ type: 'tool_use' }] },
})
const toolResult = (uuid: string, parentUuid: string): ClaudeLine => ({
  uuid,
  parentUuid,
  type: 'user',
  message: { content: [{ type: 'tool_result' }] },
})

function check(...lines: readonly ClaudeLine[]) {
  const transcript = new ClaudeCheck()
  for (const [index, line] of lines.entries()) transcript.add(line, index + 1)
  return transcript.finish()
}

describe('a Claude Code transcript', () => {
  it('is good if everything that was said is on one chain', () => {
    const { problems, turns } = check(
      prompt('a', null),
      answer('b', 'a'),
      prompt('c', 'b'),
      answer('d', 'c'),
    )
    expect([problems, turns]).toEqual([[], 2])
  })

  it('is good although tools ran at once, a helper had its own chain, and it was compacted', () => {
    const { problems } = check(
      prompt('a', null),
      toolUse('b', 'a'),
      toolUse('c', 'b'),
      toolResult('d', 'b'),
      toolResult('e', 'c'),
      answer('f', 'e'),
      { ...prompt('s', null), isSidechain: true },
      { uuid: 'g', parentUuid: null, logicalParentUuid: 'f', type: 'system' },
      { ...prompt('h', 'g'), isMeta: true },
      prompt('i', 'h'),
      answer('j', 'i'),
    )
    expect(problems).toEqual([])
  })

  it('is good although a tool call was cut off, which is left out when it is resumed', () => {
    const cutOff = [prompt('a', null), toolUse('b', 'a')]
    expect(check(...cutOff, prompt('c', 'a'), answer('d', 'c')).problems).toEqual([])
  })

  it.each<[string, readonly ClaudeLine[], string]>([
    [
      'two first turns',
      [prompt('a', null), prompt('b', null), answer('c', 'a'), answer('d', 'b')],
      '2 roots: lines 1, 2',
    ],
    [
      'two concurrent resumes',
      [
        prompt('a', null),
        answer('b', 'a'),
        prompt('c', 'b'),
        prompt('d', 'b'),
        answer('e', 'c'),
        answer('f', 'd'),
      ],
      'fork: the prompt in line 3 is not remembered',
    ],
    [
      'an answer beside the chain',
      [prompt('a', null), prompt('b', 'a'), answer('c', 'a'), answer('d', 'b')],
      'fork: the answer in line 3',
    ],
    ['a lost line', [prompt('a', null), answer('c', 'b')], 'follows b, which is not there'],
    ['a line twice', [prompt('a', null), prompt('a', null)], 'a is there twice'],
  ])('is bad with %s', (_, lines, problem) => {
    expect(check(...lines).problems.join('\n')).toContain(problem)
  })
})
