package checks

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is what these tests read of a file of .github/workflows.
type workflow struct {
	Jobs map[string]struct {
		Timeout int `yaml:"timeout-minutes"`
		Steps   []struct{ Uses, Run string }
	}
}

// TestTheWorkflowRunsWhatIsThere: the workflow may only read, and what it runs is in the repository.
func TestTheWorkflowRunsWhatIsThere(t *testing.T) {
	var ci struct {
		workflow    `yaml:",inline"`
		Permissions map[string]string
	}
	if err := yaml.Unmarshal([]byte(read(t, root+"/.github/workflows/ci.yml")), &ci); err != nil {
		t.Fatal(err)
	}
	if len(ci.Permissions) != 1 || ci.Permissions["contents"] != "read" {
		t.Errorf("permissions %v", ci.Permissions)
	}
	makefile, runs := read(t, root+"/Makefile"), ""
	for name, job := range ci.Jobs {
		for _, step := range job.Steps {
			if step.Run == "" {
				continue
			}
			runs += step.Run + "\n"
			program, argument, _ := strings.Cut(step.Run, " ")
			if program != "make" {
				read(t, filepath.Join(root, program))
			} else if !strings.Contains(makefile, "\n"+argument+": ") {
				t.Errorf("%s: there is no make %s", name, argument)
			}
		}
	}
	for _, need := range []string{".ci/run\n", "make vulnerabilities\n", "make cover\n", "make stalled\n",
		".ci/go-versions ${{"} {
		if !strings.Contains(runs, need) {
			t.Errorf("the workflow does not run %s", need)
		}
	}
}

// TestWorkflowsArePinnedAndEnd: the actions of each workflow are pinned by commit, and its jobs end.
func TestWorkflowsArePinnedAndEnd(t *testing.T) {
	files, err := filepath.Glob(root + "/.github/workflows/*.yml")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	commit := regexp.MustCompile(`^[\w/-]+@[0-9a-f]{40}$`)
	for _, file := range files {
		var flow workflow
		if err := yaml.Unmarshal([]byte(read(t, file)), &flow); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for name, job := range flow.Jobs {
			if job.Timeout < 1 || job.Timeout > 60 {
				t.Errorf("%s: %s ends after %d minutes", file, name, job.Timeout)
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !commit.MatchString(step.Uses) {
					t.Errorf("%s: %s uses %s, which is no commit", file, name, step.Uses)
				}
			}
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
