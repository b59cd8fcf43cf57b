import { networkInterfaces } from 'node:os'
import { describe, expect, it } from 'vitest'
import { EgressRule } from './egress.ts'

function reaches(allowed: readonly string[], host: string, port: number, address = host): boolean {
  return EgressRule.read(allowed).reachable(host, port, [address]).length > 0
}

describe('without exceptions a page reaches', () => {
  it.each([
    ...['1.1.1.1', '8.8.8.8', '172.15.0.1', '172.32.0.1', '100.63.0.1', '100.128.0.1'],
    ...['2606:4700::1111', '2a00:1450::1', '::ffff:8.8.8.8', '64:ff9b::808:808'],
  ])('%s', (address) => {
    expect(reaches([], 'a.example', 443, address)).toBe(true)
  })
})

describe('without exceptions a page does not reach', () => {
  it.each([
    ...['127.0.0.1', '127.255.0.1', '0.0.0.0', '10.1.2.3', '172.16.0.1', '172.31.255.255'],
    ...['192.168.1.1', '100.64.0.1', '100.100.100.200', '169.254.169.254', '168.63.129.16'],
    ...['192.0.0.192', '198.18.0.1', '203.0.113.9', '224.0.0.251', '240.0.0.1', '255.255.255.255'],
    ...['::', '::1', '::127.0.0.1', '::ffff:127.0.0.1', '::ffff:7f00:1', '0:0:0:0:0:ffff:a00:1'],
    ...['64:ff9b::7f00:1', '64:ff9b::a9fe:a9fe', '64:ff9b:1::1', '2002:7f00:1::', '2001::1'],
    ...[
      'fe80::1',
      'fe80::1%eth0',
      'fd00:ec2::254',
      'fc00::1',
      'ff02::fb',
      '2001:db8::1',
      'fec0::1',
    ],
    ...['100::1', '5f00::1', 'nonsense', ''],
  ])('%s', (address) => {
    expect(reaches([], 'a.example', 443, address)).toBe(false)
  })

  it('any address of this machine', () => {
    const own = Object.values(networkInterfaces()).flatMap((each) => each ?? [])
    expect(own.length).toBeGreaterThan(0)
    for (const { address } of own) expect(reaches([], 'a.example', 443, address)).toBe(false)
  })
})

describe('an exception', () => {
  it.each([
    ['10.0.0.0/8', 'a.example', 80, '10.9.9.9', true],
    ['10.0.0.0/8', 'a.example', 80, '::ffff:10.9.9.9', true],
    ['10.0.0.0/8', 'a.example', 80, '11.0.0.1', true],
    ['10.0.0.0/8', 'a.example', 80, '192.168.0.1', false],
    ['10.0.0.0/8:8080', 'a.example', 8080, '10.0.0.1', true],
    ['10.0.0.0/8:8080', 'a.example', 80, '10.0.0.1', false],
    ['127.0.0.1:3000', '127.0.0.1', 3000, '127.0.0.1', true],
    ['127.0.0.1:3000', '127.0.0.1', 3001, '127.0.0.1', false],
    ['127.0.0.1', '127.0.0.2', 3000, '127.0.0.2', false],
    ['fd00::/8', 'a.example', 80, 'fd12::1', true],
    ['[fd00::1]:80', 'a.example', 80, 'fd00::1', true],
    ['[fd00::1]:80', 'a.example', 81, 'fd00::1', false],
    ['[fd00::]/8:80', 'a.example', 80, 'fd12::1', true],
    ['::ffff:10.0.0.0/104', 'a.example', 80, '10.9.9.9', true],
    ['intranet.example:443', 'intranet.example', 443, '10.0.0.1', true],
    ['intranet.example:443', 'INTRANET.example.', 443, '10.0.0.1', true],
    ['intranet.example:443', 'intranet.example', 80, '10.0.0.1', false],
    ['intranet.example', 'other.intranet.example', 80, '10.0.0.1', false],
    ['*.intranet.example', 'other.intranet.example', 80, '10.0.0.1', true],
    ['*.intranet.example', 'a.b.INTRANET.example.', 80, '10.0.0.1', true],
    ['*.intranet.example', 'intranet.example', 80, '10.0.0.1', false],
    ['*.intranet.example', 'notintranet.example', 80, '10.0.0.1', false],
    ['*.intranet.example', 'a.intranet.example.other', 80, '10.0.0.1', false],
    ['*.intranet.example:443', 'a.intranet.example', 80, '10.0.0.1', false],
    ['*.internal', 'a.internal', 80, '10.0.0.1', true],
  ] as const)('%s: %s, port %i at %s is %s', (allowed, host, port, address, isReached) => {
    expect(reaches([allowed], host, port, address)).toBe(isReached)
  })

  it.each([
    ...[
      '',
      ':80',
      'http://a.example',
      'a.example/',
      'a.example:0',
      'a.example:70000',
      '10.0.0.0/33',
    ],
    ...[
      'fd00::/129',
      '0x7f000001',
      '2130706433',
      '127.1',
      '*',
      '*example',
      'a.*.example',
      '[a.example]:80',
      'a b',
    ],
    ...['[fd00::1', 'fe80::1%eth0', '10.0.0.0/8/8', 'a.example/8'],
  ])('%j is none', (text) => {
    expect(() => EgressRule.read([text], 'browsers.b.egress')).toThrow(/^browsers.b.egress must be/)
  })
})

it('keeps those addresses of a name that may be reached, and no others', () => {
  const addresses = ['127.0.0.1', '8.8.8.8', '::1', '2606:4700::1111', '10.0.0.1']
  const reachable = EgressRule.read(['10.0.0.0/8']).reachable('a.example', 80, addresses)
  expect(reachable).toEqual(['8.8.8.8', '2606:4700::1111', '10.0.0.1'])
})
