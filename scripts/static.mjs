/**
 * The part of the build that tsc does not make: the inspector, as one script and one style sheet, and
 * its page as it stands.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'

const path = (file) => fileURLToPath(new URL(`../${file}`, import.meta.url))

/** Packages that decode character references by `innerHTML` in a browser have another file for that. */
const WITHOUT_MARKUP = {
  'decode-named-character-reference': path(
    'node_modules/decode-named-character-reference/index.js',
  ),
}

/** Vite sets NODE_ENV for this whole process, which goes on to run tests or the server. */
export async function buildInspector() {
  const { NODE_ENV } = process.env
  try {
    await bundle()
  } finally {
    if (NODE_ENV === undefined) delete process.env.NODE_ENV
    else process.env.NODE_ENV = NODE_ENV
  }
}

async function bundle() {
  await build({
    configFile: false,
    root: path('src/inspector'),
    logLevel: 'warn',
    publicDir: false,
    resolve: { alias: WITHOUT_MARKUP },
    oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
    build: {
      outDir: path('dist/inspector'),
      emptyOutDir: true,
      target: 'es2023',
      modulePreload: false,
      cssCodeSplit: false,
      license: { fileName: 'licenses.txt' },
      rolldownOptions: {
        input: path('src/inspector/main.tsx'),
        output: {
          codeSplitting: false,
          entryFileNames: 'main.js',
          assetFileNames: 'inspector[extname]',
        },
      },
    },
  })
  mkdirSync(path('dist/inspector'), { recursive: true })
  // Written anew, not copied: a build is told to be fresh by the time of its files.
  writeFileSync(path('dist/inspector/index.html'), readFileSync(path('src/inspector/index.html')))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildInspector()
