/** The types of `holdfast-client`: what `scripts/declarations.mjs` keeps of declaration files. */
import { describe, expect, it } from 'vitest'

type Prune = (
  entries: readonly string[],
  read: (path: string) => string,
) => readonly { readonly path: string; readonly text: string }[]

const script = new URL('../scripts/declarations.mjs', import.meta.url).href
const { pruneDeclarations } = (await import(script)) as { pruneDeclarations: Prune }

/** The texts that are left, by path. */
function prune(entry: string, files: Record<string, string>): Record<string, string> {
  const left = pruneDeclarations([entry], (path) => {
    const text = files[path]
    if (text === undefined) throw new Error(`there is no ${path}`)
    return text
  })
  return Object.fromEntries(left.map(({ path, text }) => [path, text.trim()]))
}

describe('a declaration file', () => {
  it('keeps what its exports refer to, and loses the rest', () => {
    const text = [
      'type Used = { readonly next: Deeper };',
      'interface Deeper { x: number }',
      'type Unused = number;',
      '/** With its comment. */',
      'export declare function make(one: Used): void;',
    ]
    const kept = text.filter((line) => !line.includes('Unused')).join('\n')
    expect(prune('a.d.ts', { 'a.d.ts': text.join('\n') })).toEqual({ 'a.d.ts': kept })
  })

  it('keeps of others what it imports, re-exports or names by an import type', () => {
    const other = ['A', 'B', 'C', 'D'].map((name) => `export type ${name} = '${name}';`)
    const files = {
      'x/a.d.ts': [
        `import type { A, D } from '../y/b.ts';`,
        `export { B as Other } from '../y/b.js';`,
        `export type One = A | import('../y/b.ts').C;`,
      ].join('\n'),
      'y/b.d.ts': other.join('\n'),
    }
    expect(prune('x/a.d.ts', files)).toEqual({
      'x/a.d.ts': files['x/a.d.ts'].replace(', D', ''),
      'y/b.d.ts': other.slice(0, 3).join('\n'),
    })
  })

  it('keeps the types of a package that it refers to, and imports of packages', () => {
    const text = [
      '/// <reference types="node" />',
      `import type { Socket } from 'ws';`,
      'export type One = Socket;',
    ].join('\n')
    expect(prune('a.d.ts', { 'a.d.ts': text })).toEqual({ 'a.d.ts': text })
  })

  it('may name its own exports anew', () => {
    const text = 'declare const one: number;\nexport { one as two };'
    expect(prune('a.d.ts', { 'a.d.ts': text })).toEqual({ 'a.d.ts': text })
  })

  it.each([
    [`export * from './b.ts'`],
    [`import type * as b from './b.ts'\nexport type A = b.B`],
    ['export default 1'],
  ])('with %j is refused', (text) => {
    expect(() => prune('a.d.ts', { 'a.d.ts': text, 'b.d.ts': 'export type B = 1' })).toThrow(
      'a.d.ts: ',
    )
  })
})
