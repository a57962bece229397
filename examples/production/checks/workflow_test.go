package checks

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestTheWorkflowRunsWhatIsThere: the workflow may only read, its actions are pinned by commit, its jobs end,
// and what it runs is in the repository.
func TestTheWorkflowRunsWhatIsThere(t *testing.T) {
	var workflow struct {
		Permissions map[string]string
		Jobs        map[string]struct {
			Timeout int `yaml:"timeout-minutes"`
			Steps   []struct{ Uses, Run string }
		}
	}
	text := read(t, root+"/.github/workflows/ci.yml")
	if err := yaml.Unmarshal([]byte(text), &workflow); err != nil {
		t.Fatal(err)
	}
	if len(workflow.Permissions) != 1 || workflow.Permissions["contents"] != "read" {
		t.Errorf("permissions %v", workflow.Permissions)
	}
	makefile, commit, runs := read(t, root+"/Makefile"), regexp.MustCompile(`^[\w/-]+@[0-9a-f]{40}$`), ""
	for name, job := range workflow.Jobs {
		if job.Timeout < 1 || job.Timeout > 60 {
			t.Errorf("%s ends after %d minutes", name, job.Timeout)
		}
		for _, step := range job.Steps {
			switch target, isMake := strings.CutPrefix(step.Run, "make "); {
			case step.Uses != "":
				if !commit.MatchString(step.Uses) {
					t.Errorf("%s uses %s, which is no commit", name, step.Uses)
				}
			case isMake:
				if !strings.Contains(makefile, "\n"+target+": ") {
					t.Errorf("%s: there is no make %s", name, target)
				}
			default:
				read(t, filepath.Join(root, step.Run))
			}
			runs += step.Run + "\n"
		}
	}
	for _, need := range []string{".ci/run\n", "make vulnerabilities\n"} {
		if !strings.Contains(runs, need) {
			t.Errorf("the workflow does not run %s", need)
		}
	}
}

// TestIssueTemplatesAreForms: each template is a form with what GitHub requires, and questions about
// vulnerabilities lead to the private report.
func TestIssueTemplatesAreForms(t *testing.T) {
	files, err := filepath.Glob(root + "/.github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		var form struct {
			Name, Description string
			Body              []struct {
				Type, ID    string
				Attributes  struct{ Label, Value string }
				Validations struct{ Required bool }
			}
			ContactLinks []struct{ Name, URL, About string } `yaml:"contact_links"`
		}
		if err := yaml.Unmarshal([]byte(read(t, file)), &form); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if filepath.Base(file) == "config.yml" {
			links := form.ContactLinks
			if len(links) != 1 || !strings.HasSuffix(links[0].URL, "/security/advisories/new") {
				t.Errorf("%s: %+v", file, links)
			}
			continue
		}
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s lacks a name, a description or a body", file)
		}
		ids := map[string]bool{}
		for _, field := range form.Body {
			switch {
			case field.Type == "markdown" && field.Attributes.Value != "":
			case field.Type != "input" && field.Type != "textarea", field.Attributes.Label == "", field.ID == "",
				ids[field.ID]:
				t.Errorf("%s: %+v", file, field)
			}
			ids[field.ID] = true
		}
	}
}
