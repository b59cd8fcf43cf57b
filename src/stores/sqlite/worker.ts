/**
 * The writer's thread. Whenever it is idle it takes all operations that wait on its port, so that a
 * group is as large as the load makes it, without a timer.
 */
import { parentPort, receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads'
import { openFile, type OpenFile } from './database.ts'
import { storeError } from './failures.ts'
import type {
  WriterAnswers,
  MigrationNotice,
  WriterOperation,
  WriterOptions,
} from './operations.ts'
import type { Migration } from './migrations.ts'
import { Writer } from './writer.ts'

/** Operations in one group. */
const OPERATIONS_MAX = 1_000

const options = workerData as WriterOptions
const port = parentPort as MessagePort

function start(): Writer | null {
  try {
    const notice = (migration: Migration): void =>
      port.postMessage({ migration } satisfies MigrationNotice)
    const writer = writerOf(openFile(options, notice))
    port.postMessage({ values: [null], failures: [] } satisfies WriterAnswers)
    return writer
  } catch (thrown) {
    const { code, message, details } = storeError(thrown, options.file)
    const answers: WriterAnswers = { values: [null], failures: [[0, code, message, details]] }
    port.postMessage(answers)
    port.close()
    return null
  }
}

function writerOf(open: OpenFile): Writer {
  try {
    return new Writer(open)
  } catch (thrown) {
    open.close(false)
    throw thrown
  }
}

function serve(writer: Writer): void {
  port.on('message', (first: WriterOperation[]) => {
    const operations = waiting(first)
    const answers = writer.run(operations)
    const isLast = operations.at(-1)?.[0] === 'close'
    if (isLast) closeWriter(writer, answers)
    port.postMessage(answers)
    if (isLast) port.close()
    else writer.checkpoint()
  })
}

function waiting(first: WriterOperation[]): WriterOperation[] {
  const operations = first
  while (operations.length < OPERATIONS_MAX) {
    const next: { message: WriterOperation[] } | undefined = receiveMessageOnPort(port)
    if (next === undefined) break
    for (const operation of next.message) operations.push(operation)
  }
  return operations
}

function closeWriter(writer: Writer, answers: WriterAnswers): void {
  try {
    writer.close()
  } catch (thrown) {
    const { code, message, details } = storeError(thrown, options.file)
    answers.failures.push([answers.values.length - 1, code, message, details])
  }
}

const writer = start()
if (writer !== null) serve(writer)
