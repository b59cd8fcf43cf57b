/**
 * The files in `deploy`: no Docker and no Kubernetes run here, so they are read and
 * compared with the program that they start, and the load balancer is run with its very file.
 */
import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { connect } from 'holdfast/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { parse, parseAllDocuments } from 'yaml'
import { LIMITS } from '../../src/core/limits.ts'
import { FORWARD_LIMITS, SERVER_LIMITS } from '../../src/server/limits.ts'
import { GUARDED, guarded } from '../support/guarded.ts'
import { until } from '../support/gate.ts'
import { CLI, ROOT } from '../support/repository.ts'
import { Cluster, freePort, type ServerProcess } from '../support/server-process.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'

const FOLDER = `${ROOT}deploy/`
const HAPROXY = '/usr/sbin/haproxy'

const read = (name: string): string => readFileSync(`${FOLDER}${name}`, 'utf8')

/** `--name=value` of a command line; a flag without a value is true. */
function flagsOf(args: readonly string[]): Record<string, string> {
  expect(args[0]).toBe('serve')
  return Object.fromEntries(
    args.slice(1).map((arg) => {
      const [, name, value = ''] = /^--([\w-]+)(?:=(.*))?$/.exec(arg) ?? []
      expect(name, arg).toBeDefined()
      return [name, value]
    }),
  )
}

function isInstalled(program: string): boolean {
  const paths = (process.env['PATH'] ?? '').split(':')
  return [...paths, '/usr/sbin'].some((path) => existsSync(join(path, program)))
}

/** All that a program prints; it must succeed. */
function run(program: string, args: readonly string[]): string {
  const env = { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin` }
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8', env })
  expect(status, stdout + stderr).toBe(0)
  return stdout + stderr
}

/** How long a node may take from its signal to its end. */
function stopMsMax(drainMs: number): number {
  return 2 * drainMs + FORWARD_LIMITS.lingerMs + SERVER_LIMITS.farewellMs
}

/** The flags that the program has, as it tells them itself. */
const KNOWN = execFileSync(process.execPath, [CLI, 'serve', '--help'], { encoding: 'utf8' })

function expectKnown(flags: Record<string, string>): void {
  for (const [name, value] of Object.entries(flags)) {
    const takesValue = new RegExp(`^ +--${name}( [A-Z[]\\S*)? {2}`, 'm').exec(KNOWN)
    expect(takesValue, `--${name}`).not.toBeNull()
    expect(takesValue?.[1] !== undefined, `the value of --${name}`).toBe(value !== '')
  }
}

describe('the compose file', () => {
  const { services, secrets } = parse(read('compose.yaml'), { merge: true })
  const nodes = Object.entries<any>(services).filter(([name]) => name.startsWith('node-'))

  it('starts two nodes with flags that there are, alike but for their addresses', () => {
    expect(nodes).toHaveLength(2)
    const all = nodes.map(([name, { command }]) => {
      const { advertise = '', ...flags } = flagsOf(command)
      expect(advertise).toBe(`http://${name}:7420`)
      expectKnown({ advertise, ...flags })
      return flags
    })
    expect(all[0]).toEqual(all[1])
  })

  it('gives them their secrets, their database and the time to stop', () => {
    const { database } = services
    for (const [, node] of nodes) {
      const { tokens, store, ...flags } = flagsOf(node.command)
      const named = [tokens, flags['cluster-secret-file']]
      expect(named).toEqual(['/run/secrets/tokens', '/run/secrets/cluster'])
      expect(node.secrets.every((name: string) => Object.hasOwn(secrets, name))).toBe(true)
      const { POSTGRES_USER: user, POSTGRES_DB: name } = database.environment
      expect(store).toBe(`postgres://${user}@database/${name}`)
      expect(node.environment.PGPASSWORD).toBe(database.environment.POSTGRES_PASSWORD)
      const graceMs = Number.parseInt(node.stop_grace_period) * 1_000
      expect(graceMs).toBeGreaterThan(stopMsMax(Number(flags['drain-ms'])))
    }
  })

  it('has the balancer send to all nodes, by names that the nodes are called by', () => {
    const { balancer } = services
    const { BALANCER_BIND: bind, ...targets } = balancer.environment
    expect(Object.values(targets)).toEqual(nodes.map(([name]) => `${name}:7420`))
    expect(balancer.ports[0]).toContain(`:8080${bind}`)
    expect(balancer.volumes[0]).toContain('./haproxy.cfg:')
    const [, host] = /hdr Host (\S+)/.exec(read('haproxy.cfg')) ?? []
    expect(flagsOf(nodes[0]![1].command)['allow-host']).toBe(host)
    for (const name of Object.keys(targets)) expect(read('haproxy.cfg')).toContain(`"\${${name}}"`)
  })
})

describe('the manifest for Kubernetes', () => {
  const documents = parseAllDocuments(read('kubernetes.yaml')).map((one): any => one.toJS())
  const of = (kind: string): any => documents.find((one) => one.kind === kind)
  const { template, selector } = of('Deployment').spec
  const [container] = template.spec.containers
  const flags = flagsOf(container.args)

  it('starts nodes with flags that there are, each at the address of its own pod', () => {
    expectKnown(flags)
    expect(flags['advertise']).toBe('http://$(POD_IP):7420')
    const variables = new Map(container.env.map((one: any) => [one.name, one.valueFrom]))
    expect(variables.get('POD_IP')).toEqual({ fieldRef: { fieldPath: 'status.podIP' } })
    const used = container.args.join(' ').matchAll(/\$\((\w+)\)/g)
    for (const [, name] of used) expect(variables.has(name)).toBe(true)
  })

  it('takes every secret from the one that it names', () => {
    const keys = Object.keys(of('Secret').stringData)
    const fromEnv = container.env.flatMap((one: any) => one.valueFrom.secretKeyRef?.key ?? [])
    const { secret } = template.spec.volumes.find((one: any) => one.name === 'secrets')
    const mounted = secret.items.map((one: any) => one.key)
    expect([...fromEnv, ...mounted].toSorted()).toEqual(keys.toSorted())
    const { mountPath } = container.volumeMounts.find((one: any) => one.name === 'secrets')
    const paths = secret.items.map((one: any) => `${mountPath}/${one.path}`)
    expect(paths).toEqual([flags['cluster-secret-file'], flags['tokens']])
    expect(of('Secret').stringData['database-url']).not.toMatch(/:[^/@]+@/)
  })

  it('agrees with itself on ports, names and labels', () => {
    const [port] = container.ports
    expect(String(port.containerPort)).toBe(flags['port'])
    expect(of('Service').spec.ports[0].targetPort).toBe(port.name)
    const labels = [selector.matchLabels, of('Service').spec.selector]
    labels.push(of('PodDisruptionBudget').spec.selector.matchLabels, template.metadata.labels)
    for (const one of labels) expect(one).toEqual({ app: 'holdfast' })
    for (const { httpGet } of [container.readinessProbe, container.livenessProbe]) {
      expect(httpGet.port).toBe(port.name)
      expect(httpGet.httpHeaders).toEqual([{ name: 'Host', value: flags['allow-host'] }])
    }
  })

  it('gives a node the time that it may take to stop', () => {
    const graceMs = template.spec.terminationGracePeriodSeconds * 1_000
    expect(graceMs).toBeGreaterThan(stopMsMax(Number(flags['drain-ms'])))
    const { periodSeconds, failureThreshold } = container.readinessProbe
    expect(periodSeconds * failureThreshold * 1_000).toBeLessThan(FORWARD_LIMITS.lingerMs)
  })
})

describe('the image', () => {
  const dockerfile = readFileSync(`${ROOT}Dockerfile`, 'utf8')

  it('is made of files that are there, and that Docker is let see', () => {
    const ignored = readFileSync(`${ROOT}.dockerignore`, 'utf8').split('\n')
    const copied = [...dockerfile.matchAll(/^COPY (?!--)(.+) \S+$/gm)].flatMap(([, files = '']) =>
      files.split(' '),
    )
    expect(copied.length).toBeGreaterThan(5)
    for (const file of copied) {
      expect(existsSync(`${ROOT}${file}`), file).toBe(true)
      expect(ignored, file).toContain(`!${file}`)
    }
    expect(dockerfile).toContain('npm run build')
  })

  it('starts what the package calls holdfast, on its port', () => {
    const { bin } = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8'))
    expect(dockerfile).toContain(`/opt/holdfast/${bin.holdfast.replace('./', '')}`)
    expect(dockerfile).toMatch(/^EXPOSE 7420$/m)
    expect(dockerfile).toMatch(/^USER node$/m)
  })
})

describe('the unit of systemd', () => {
  const unit = readFileSync(`${FOLDER}holdfast.service`, 'utf8')
  const flags = flagsOf(/^ExecStart=\S+ (.+)$/m.exec(unit)?.[1]?.split(' ') ?? [])

  it('starts a server with flags that there are, and gives it the time to stop', () => {
    expectKnown(flags)
    const stopMs = Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)?.[1]) * 1_000
    expect(stopMs).toBeGreaterThan(stopMsMax(Number(flags['drain-ms'])))
  })

  it.runIf(isInstalled('systemd-analyze'))('is one that systemd takes, and calls safe', () => {
    const file = join(mkdtempSync(join(tmpdir(), 'holdfast-unit-')), 'holdfast.service')
    // Of the file, since the program is not installed here.
    writeFileSync(file, unit.replace('/opt/holdfast/bin/holdfast', process.execPath))
    try {
      const told = run('systemd-analyze', ['verify', file]).split('\n')
      expect(told.filter((line) => line.includes('holdfast.service'))).toEqual([])
      const args = ['security', '--offline=true', '--threshold=20', file]
      expect(run('systemd-analyze', args)).toContain('OK')
    } finally {
      rmSync(dirname(file), { recursive: true })
    }
  })
})

describe('the proxies in front of one server', () => {
  it.runIf(isInstalled('nginx'))('nginx takes its file', () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-nginx-'))
    const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (name) => `${name}_temp_path ${folder}/${name};`,
    )
    const http = `http { access_log off; ${paths.join(' ')} include ${FOLDER}nginx.conf; }`
    const whole = `pid ${folder}/pid; error_log ${folder}/log; events {} ${http}`
    writeFileSync(join(folder, 'nginx.conf'), whole)
    const told = run('nginx', ['-t', '-c', join(folder, 'nginx.conf')])
    rmSync(folder, { recursive: true })
    expect(told).toContain('syntax is ok')
  })

  it.runIf(isInstalled('caddy'))('Caddy takes its file', () => {
    const args = ['validate', '--adapter', 'caddyfile', '--config', `${FOLDER}Caddyfile`]
    expect(run('caddy', args)).toContain('Valid configuration')
  })

  it('wait for a turn as long as one may run', () => {
    for (const name of ['nginx.conf', 'Caddyfile']) {
      const [, seconds] = /timeout (\d+)s/.exec(read(name)) ?? []
      expect(Number(seconds) * 1_000, name).toBeGreaterThan(LIMITS.turnMs)
    }
  })
})

describe('the package', () => {
  it('has what is run and what is read about it, and no tests, sources, maps or pictures', () => {
    const args = ['pack', '--dry-run', '--json', '--ignore-scripts']
    const told = execFileSync('npm', args, { cwd: ROOT, encoding: 'utf8', stdio: 'pipe' })
    const packed = JSON.parse(told)
    const [{ files }] = Array.isArray(packed) ? packed : Object.values<any>(packed)
    const paths: string[] = files.map(({ path }: { path: string }) => path)
    const allowed =
      /^(dist\/.*\.(js|d\.ts|html|css|txt)|docs\/.*\.md|config\.schema\.json|package\.json|[A-Z]+(\.md)?)$/
    expect(paths.filter((path) => !allowed.test(path) || /\.test\./.test(path))).toEqual([])
    expect(paths).toContain('dist/cli/main.js')
  })

  it('has an SBOM of all that is needed at run time, and of nothing else', () => {
    const told = execFileSync('node', ['scripts/sbom.mjs'], { cwd: ROOT, encoding: 'utf8' })
    const { bomFormat, metadata, components } = JSON.parse(told)
    expect([bomFormat, metadata.component.name]).toEqual(['CycloneDX', 'holdfast'])
    const names = components.map(({ group, name }: any) => (group ? `${group}/${name}` : name))
    const { dependencies } = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8'))
    expect(names).toEqual(expect.arrayContaining(Object.keys(dependencies)))
    expect(names).not.toContain('vitest')
  })
})

/** Said once, so that nobody takes a skipped test for a passed one. */
const hasBalancer = existsSync(HAPROXY)
if (!hasBalancer) console.warn(`there is no ${HAPROXY}: the balancer's tests are skipped`)

describe.runIf(hasBalancer)('two nodes behind the balancer', () => {
  let database: TestDatabase
  let cluster: Cluster
  let leaving: ServerProcess
  let staying: ServerProcess
  let balancer: ChildProcess
  let url: string
  let folder: string
  let token: string

  beforeAll(async () => {
    database = await openTestDatabase()
    cluster = new Cluster(database.freshUrl(), { leaseMs: 5_000 })
    folder = mkdtempSync(join(tmpdir(), 'holdfast-deployment-'))
    const tokens = join(folder, 'tokens.json')
    token = newToken(tokens)
    const flags = ['--tokens', tokens, '--allow-host', 'api.example', '--trust-proxy']
    ;[leaving, staying] = await Promise.all([cluster.add(flags), cluster.add(flags)])
    const port = await freePort()
    url = `http://127.0.0.1:${port}`
    const env = {
      BALANCER_BIND: `127.0.0.1:${port}`,
      NODE_1: new URL(leaving.url).host,
      NODE_2: new URL(staying.url).host,
    }
    const args = ['-db', '-f', `${FOLDER}haproxy.cfg`]
    balancer = guarded(spawn(HAPROXY, args, { stdio: 'ignore', env, ...GUARDED }))
    await until(async () => {
      expect(balancer.exitCode).toBeNull()
      return (await get('/ready').catch(() => null))?.status === 200
    })
  })
  afterAll(async () => {
    if (balancer.exitCode === null && balancer.kill('SIGKILL')) await once(balancer, 'exit')
    await cluster.close()
    await database.close()
    rmSync(folder, { recursive: true })
  })

  function newToken(file: string): string {
    const args = [CLI, 'token', 'new', 'laptop', '--tokens', file, '--scope', 'admin']
    const told = execFileSync(process.execPath, args, { encoding: 'utf8' })
    return /hf_\S+/.exec(told)?.[0] ?? ''
  }

  const get = (path: string): Promise<Response> => fetch(`${url}${path}`)

  function post(path: string, body: object, headers = {}): Promise<Response> {
    return fetch(`${url}${path}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization: `Bearer ${token}`,
        ...headers,
      },
      body: JSON.stringify(body),
    })
  }

  it('answer probes at the paths that the manifests name', async () => {
    for (const path of ['/ready', '/health']) {
      for (const node of [leaving, staying]) expect((await node.get(path)).status).toBe(200)
    }
  })

  it('lose no request, stream or socket when one of them is stopped under load', async () => {
    const failures: string[] = []
    const done = { turns: 0, streams: 0, sockets: 0 }
    const state = { on: true }

    const turns = async (key: string): Promise<void> => {
      for (let n = 0; state.on; n += 1) {
        const response = await post(`/v1/keys/${key}/turns`, { input: `${key} ${n}` })
        const { turn } = (await response.json()) as any
        if (turn?.reply?.text === `${key} ${n}`) done.turns += 1
        else failures.push(`turn: ${response.status} ${JSON.stringify(turn)}`)
      }
    }
    const streams = async (key: string): Promise<void> => {
      for (let n = 0; state.on; n += 1) {
        const input = { text: 'a b c', ms: 300 }
        const accept = { accept: 'text/event-stream' }
        const body = { agent: 'slow', input }
        const text = await (await post(`/v1/keys/${key}/turns`, body, accept)).text()
        if (/"turn\.done"/.test(text)) done.streams += 1
        else failures.push(`stream: ${text.slice(-200)}`)
      }
    }
    const sockets = async (key: string): Promise<void> => {
      const session = connect({ url, token, webSocket: WebSocket }).session({ key })
      for (let n = 0; state.on; n += 1) {
        const { reply, state: end } = await session.turn(`${key} ${n}`)
        if (reply?.text === `${key} ${n}`) done.sockets += 1
        else failures.push(`socket: ${end}`)
        await setTimeout(5)
      }
      session.dispose()
    }
    const noted = (work: Promise<void>): Promise<void> =>
      work.catch((thrown: unknown) => void failures.push(String(thrown)))
    const names = (kind: string): string[] => Array.from({ length: 6 }, (_, n) => `${kind}-${n}`)
    const load = [
      ...names('turns').map(turns),
      ...names('streams').map(streams),
      ...names('sockets').map(sockets),
    ].map(noted)
    const all = (): number => Math.min(done.turns, done.streams, done.sockets)
    await until(() => all() >= 10)
    expect(await leaving.stop()).toBe(0)
    const before = { ...done }
    const goOn = (): boolean =>
      done.turns > before.turns &&
      done.sockets > before.sockets &&
      done.streams >= before.streams + 6
    await until(() => goOn() || failures.length > 0)
    state.on = false
    await Promise.all(load)
    expect(failures).toEqual([])
    expect(goOn()).toBe(true)
  })
})
