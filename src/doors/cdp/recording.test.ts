import { describe, expect, it } from 'vitest'
import { redacted } from './recording.ts'

const SECRET = 'hunter2'

describe('a recorded message', () => {
  it.each([
    { method: 'Input.insertText', params: { text: SECRET } },
    { method: 'Input.dispatchKeyEvent', params: { type: 'char', text: SECRET, key: SECRET } },
    { method: 'Network.setCookie', params: { name: 'a', value: SECRET, url: 'http://a' } },
    {
      method: 'Storage.setCookies',
      params: { cookies: [{ name: 'a', value: SECRET, domain: 'a' }] },
    },
    { result: { cookies: [{ name: 'a', value: SECRET, domain: 'a', httpOnly: true }] } },
    { params: { request: { headers: { Cookie: SECRET, authorization: `Basic ${SECRET}` } } } },
    { params: { headers: { 'set-cookie': SECRET, 'X-Api-Key': SECRET } } },
    { params: { headers: [{ name: 'Authorization', value: SECRET }] } },
    { params: { request: { postData: SECRET, postDataEntries: [{ bytes: SECRET }] } } },
    { params: { authChallengeResponse: { username: SECRET, password: SECRET } } },
    { method: 'Runtime.callFunctionOn', params: { arguments: [{ value: SECRET }] } },
    { params: { url: `https://user:${SECRET}@a/?access_token=${SECRET}&q=1#code=${SECRET}` } },
    { result: { body: `${'x'.repeat(1_000)}${SECRET}` } },
  ])('has no secret in it: %j', (message) => {
    expect(JSON.stringify(redacted(message))).not.toContain(SECRET)
  })

  it('keeps what tells what happened', () => {
    const message = {
      id: 7,
      method: 'Page.navigate',
      params: { url: 'https://example.com/?q=1', frameId: 'F', list: [1, { name: 'n', value: 2 }] },
      sessionId: 'S',
    }
    expect(redacted(message)).toEqual(message)
  })
})
