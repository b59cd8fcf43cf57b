/** Holdfast in process, for a comparison of two builds: one measurement, and what it cost. */
import { embedded } from './embedded.ts'

const [file = '', keys = '', callers = '', seconds = ''] = process.argv.slice(2)
const before = process.cpuUsage()
const load = await embedded(file, Number(keys), Number(callers), Number(seconds))
const { user, system } = process.cpuUsage(before)
process.send?.({ ...load, latencies: [], cpu: (user + system) / load.turns })
process.disconnect()
