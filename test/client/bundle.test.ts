/** What a page has to load. */
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build, type Rolldown } from 'vite'
import { describe, expect, it } from 'vitest'

const ENTRY = fileURLToPath(new URL('../../src/client/index.ts', import.meta.url))

async function bundle(): Promise<Rolldown.OutputChunk> {
  const result = (await build({
    configFile: false,
    logLevel: 'silent',
    build: {
      write: false,
      minify: true,
      lib: { entry: ENTRY, formats: ['es'], fileName: 'client' },
      // Whatever is not in the bundle shows as an import.
      rolldownOptions: { external: [/^node:/] },
    },
  })) as Rolldown.RolldownOutput[]
  const [chunk, ...others] = result.flatMap(({ output }) => output)
  expect(others).toEqual([])
  return chunk as Rolldown.OutputChunk
}

describe('the client in a bundle', () => {
  it('is under 12 kB, minified and compressed, and needs nothing else', async () => {
    const { code, imports, dynamicImports, moduleIds } = await bundle()
    expect([...imports, ...dynamicImports]).toEqual([])
    const files = moduleIds.map((id) => /src\/(.*)$/.exec(id)?.[1])
    const others = files.filter((file) => file?.match(/^(client|wire)\//) === null)
    // Of the core the one rule that both ends share.
    expect(others).toEqual(['core/answer-text.ts'])
    expect(gzipSync(code).length).toBeLessThan(12_000)
  })
})
