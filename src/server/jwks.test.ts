import { describe, expect, it } from 'vitest'
import { discoveredKeys } from './jwks.ts'

const FAR = 'https://id.example'
const NEAR = 'http://127.0.0.1:8080'

describe('the address of the keys', () => {
  it.each([
    [FAR, 'https://id.example/keys'],
    [FAR, 'https://keys.example/of/id'],
    [NEAR, 'http://127.0.0.1:8081/keys'],
    [NEAR, 'https://id.example/keys'],
  ])('may for %s be %s', (issuer, address) => {
    expect(discoveredKeys(issuer, { issuer, jwks_uri: address })).toBe(address)
  })

  it.each([
    [FAR, 'http://id.example/keys'],
    [FAR, 'http://127.0.0.1/keys'],
    [FAR, 'http://localhost/keys'],
    [FAR, 'file:///etc/passwd'],
    [FAR, 'https://me:secret@id.example/keys'],
    [FAR, '/keys'],
    [FAR, undefined],
    [FAR, ['https://id.example/keys']],
    [NEAR, 'http://192.0.2.1/keys'],
  ])('may for %s not be %s', (issuer, address) => {
    const document = { issuer, jwks_uri: address }
    expect(() => discoveredKeys(issuer, document)).toThrow('no jwks_uri that can be used')
  })

  it.each([null, [], 'text', {}, { issuer: `${FAR}/`, jwks_uri: `${FAR}/keys` }])(
    'is not taken from %j, which is of no or another issuer',
    (document) => {
      expect(() => discoveredKeys(FAR, document)).toThrow('of another issuer')
    },
  )
})
