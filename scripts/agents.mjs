/**
 * The real agents that the tests run, each installed from npm into a folder of its own under
 * `.agents`: they are large, so they are no dependencies, and stay there from one run to the next.
 * Their install scripts are not run; what is run is the program in the package for this platform.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from './prepare.mjs'

const PLATFORM = `${process.platform}-${process.arch}`

/** The package, and its program from the folder that it is installed in. */
const AGENTS = {
  claude: {
    package: '@anthropic-ai/claude-code@2.1.197',
    program: `@anthropic-ai/claude-code-${PLATFORM}/claude`,
  },
  codex: { package: '@openai/codex@0.166.0', program: '.bin/codex' },
  opencode: { package: 'opencode-ai@1.18.33', program: `opencode-${PLATFORM}/bin/opencode` },
  gemini: { package: '@google/gemini-cli@0.61.0', program: '.bin/gemini' },
  copilot: { package: '@github/copilot@1.0.102', program: '.bin/copilot' },
  // It brings a Claude Code of its own; later releases need Node 22.
  'claude-agent-acp': {
    package: '@agentclientprotocol/claude-agent-acp@0.49.0',
    program: '.bin/claude-agent-acp',
  },
}

export const AGENT_NAMES = Object.keys(AGENTS)

/** Where an agent's program is, or will be. `test/support/real-agents.ts` looks there too. */
function linkOf(name) {
  return join(ROOT, '.agents', name, 'program')
}

/** True if all of them are there, or could be installed. */
export function prepareAgents(names) {
  return names.map(install).every(Boolean)
}

function install(name) {
  const { package: wanted, program } = AGENTS[name]
  const folder = join(ROOT, '.agents', name)
  const path = join(folder, 'node_modules', program)
  if (!existsSync(path) && !npmInstall(wanted, folder)) {
    console.log(`${wanted} could not be installed, so ${name} cannot be tested`)
    return false
  }
  if (!existsSync(path)) {
    console.log(`${wanted} has no program for ${PLATFORM}, so ${name} cannot be tested`)
    return false
  }
  writeFileSync(linkOf(name), path)
  return true
}

function npmInstall(wanted, folder) {
  console.log(`installing ${wanted} …`)
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{ "private": true }\n')
  const args = [
    'install',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
    wanted,
  ]
  const { status, stderr } = spawnSync('npm', args, { cwd: folder, encoding: 'utf8' })
  if (status !== 0) console.log(stderr)
  return status === 0
}
