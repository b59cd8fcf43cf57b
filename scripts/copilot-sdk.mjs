/**
 * The stock Copilot SDK, in `.agents/copilot-sdk`: 13 MB. What it would run by itself, the runtime of
 * GitHub, is an optional dependency of some 150 MB and is left out.
 */
import { join } from 'node:path'
import { prepareFolder } from './npm-folder.mjs'
import { ROOT } from './prepare.mjs'

export const COPILOT_SDK = '1.0.14'

/** The folder of the SDK if it is there, or could be installed; null if not. */
export function prepareCopilotSdk() {
  const folder = join(ROOT, '.agents', 'copilot-sdk')
  const dependencies = { '@github/copilot-sdk': COPILOT_SDK }
  return prepareFolder(folder, dependencies, ['--omit=optional']) ? folder : null
}
