/** The stock Copilot SDK, as `scripts/copilot-sdk.mjs` has installed it. */
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { ROOT } from './repository.ts'

const FOLDER = join(ROOT, '.agents', 'copilot-sdk')
export const SDK_PACKAGE = join(FOLDER, 'node_modules', '@github', 'copilot-sdk')
const { resolve } = createRequire(join(FOLDER, 'package.json'))

/** It has types of its own, which this project does not install. */
export async function importSdk(name = '@github/copilot-sdk'): Promise<any> {
  if (!existsSync(SDK_PACKAGE)) throw new Error('the Copilot SDK is missing: npm test installs it')
  return import(/* @vite-ignore */ pathToFileURL(resolve(name)).href)
}

/** A file of the SDK. */
export function sdkFile(path: string): string {
  return readFileSync(join(SDK_PACKAGE, path), 'utf8')
}

/** What `copilot-client.mjs` loads. */
export const SDK_URL = pathToFileURL(join(SDK_PACKAGE, 'dist', 'index.js')).href
