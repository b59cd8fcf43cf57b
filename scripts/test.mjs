/**
 * `npm test`: every check of the project, each told with its duration, all of them run even if one
 * fails. Ends with one line, `N passed, N failed`; arguments go to vitest.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { prepareAgents } from './agents.mjs'
import { prepareCopilotSdk } from './copilot-sdk.mjs'
import { prepareMachine } from './machine.mjs'
import { checkNode, compile, endWithNpm, PACKAGE, prepare, PROGRAMS, runTool } from './prepare.mjs'

const total = { passed: 0, failed: 0 }

checkNode()
endWithNpm()
const prepared = await prepare([])
if (prepared) await runSteps()
else total.failed += 1
console.log(`${total.passed} passed, ${total.failed} failed`)
process.exitCode = total.failed === 0 ? 0 : 1

async function runSteps() {
  const built = await prepare([PACKAGE])
  await step('format', () => check(runTool('oxfmt', ['--check', '.'], { quiet: true })))
  await step('lint', () => check(runTool('oxlint', ['--type-aware'], { quiet: true })))
  await step('machine', () => check(prepareMachine()))
  await step('agents', () => check(prepareAgents(['claude'])))
  await step('copilot sdk', () => check(prepareCopilotSdk() !== null))
  await step('types', () => check(compile(PROGRAMS)))
  await step('tests', () => (built ? runTests() : noTests()))
}

/** A step tells how much of it passed and how much failed; these add up to the last line. */
async function step(name, work) {
  console.log(`${name} …`)
  const startedAt = performance.now()
  const { passed, failed } = await work()
  total.passed += passed
  total.failed += failed
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
  console.log(`${name} ${failed === 0 ? 'passed' : 'FAILED'} in ${seconds} s`)
}

async function check(succeeded) {
  return (await succeeded) ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 }
}

function noTests() {
  console.log('not run: the build failed')
  return { passed: 0, failed: 1 }
}

async function runTests() {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-test-'))
  try {
    const report = join(folder, 'report.json')
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
    const succeeded = await runTool('vitest', ['run', ...reporters, ...process.argv.slice(2)])
    return countTests(report, succeeded)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** A file that does not load, an error outside every test, no report, no tests: each is a failure. */
function countTests(path, succeeded) {
  const { numPassedTests: passed, numFailedTests, testResults } = readReport(path)
  const unloaded = testResults.filter(
    ({ status, assertionResults }) => status === 'failed' && assertionResults.length === 0,
  )
  const failed = numFailedTests + unloaded.length
  const unexplained = failed === 0 && (!succeeded || passed === 0)
  return { passed, failed: unexplained ? 1 : failed }
}

function readReport(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'))
  } catch {
    return { numPassedTests: 0, numFailedTests: 0, testResults: [] }
  }
}
